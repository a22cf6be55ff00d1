#!/usr/bin/python3
"""A sandboxed tool that takes what it can get."""
import os, sys, time


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
for do in fork, hog, spin:
    if f'"{do.__name__}"' in asked:
        do()
