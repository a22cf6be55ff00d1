#!/usr/bin/python3
"""A tool in a sandbox, which says what it is and takes what it can get."""
import os, sys, time


def status():
    wanted = {"CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp"}
    lines = (line.split() for line in open("/proc/self/status"))
    return " ".join(f"{f[0]}{int(f[1], 16)}" for f in lines if f[0].rstrip(":") in wanted)


def tried(what, *args):
    try:
        what(*args)
        return "done"
    except OSError as e:
        return os.strerror(e.errno)


def look():
    print("uid", os.getuid(), os.geteuid(), "gid", os.getgid(), os.getegid(), status())
    print("write", tried(open, "/usr/x", "w"), "networks", len(open("/proc/self/net/dev").readlines()) - 2, "root", *sorted(os.listdir("/")))


def fork():
    n = 0
    try:
        while n < 200:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            n += 1
    except OSError:
        pass
    print("forked", "few" if n < 64 else "many", n)


def hog():
    taken = [bytearray(b"x") * (1 << 20) for _ in range(256)]
    print("took", len(taken))


def spin():
    began, used = time.monotonic(), time.process_time()
    while time.monotonic() - began < 1:
        pass
    share = (time.process_time() - used) / (time.monotonic() - began)
    print("spun", "half" if share < 0.6 else "all", share)


asked = sys.stdin.read()  # there is no package json here
for do in look, fork, hog, spin:
    if f'"{do.__name__}"' in asked:
        do()
