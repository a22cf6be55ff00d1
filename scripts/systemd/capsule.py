#!/usr/bin/python3 -SEB
"""A capsule that does to its machine what it is asked to."""
import os
import re
import sys
import time


def say(text):
    sys.stdout.write('{"jsonrpc":"2.0",%s}\n' % text)
    sys.stdout.flush()


def answer(do):
    if do == "forge":  # a line of the log that Orla did not write
        import socket
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
            journal.sendto(b"SYSLOG_IDENTIFIER=orla\nPRIORITY=6\nMESSAGE=stderr\nORLA_MSG=stderr\nORLA_TOOL=weather\nORLA_TEXT=a forged line\n", "/run/systemd/journal/socket")
    if do == "daemon":  # hidden from everybody but the kernel
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                null = os.open("/dev/null", os.O_RDWR)
                for fd in 0, 1, 2:
                    os.dup2(null, fd)
                os.execve("/bin/sh", ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"], {})
            os._exit(0)
        os.wait()
    if do == "hog":
        kept = []
        while True:
            kept.append(bytearray(os.urandom(1 << 16) * 16))
    if do == "fork":
        children = 0
        try:
            while children < 100:
                if os.fork() == 0:
                    sys.stdin.close()
                    os.execv("/bin/sleep", ["sleep", "3"])
                children += 1
        except OSError as e:
            return "%d children, then %s" % (children, e.strerror)
        return "%d children" % children
    if do == "slow":  # until it is let go
        while not os.path.exists("/var/lib/orla/go"):
            time.sleep(0.05)
    return "pid %d notify [%s] credentials [%s]" % (os.getpid(), os.environ.get("NOTIFY_SOCKET", ""), os.environ.get("CREDENTIALS_DIRECTORY", ""))


if "--die" in sys.argv:
    sys.exit(3)
say('"method":"orla.hello","params":{"name":"%s","version":"1.0.0","capabilities":[]}' % os.environ["ORLA_TOOL"])
for line in sys.stdin:
    id = re.search(r'"id": *(\d+)', line)
    do = re.search(r'"do": *"(\w+)"', line)
    if id and '"tools/call"' in line:
        say('"id":%s,"result":{"content":[{"type":"text","text":"%s"}]}' % (id.group(1), answer(do.group(1) if do else "")))
    elif id:
        say('"id":%s,"error":{"code":-32601,"message":"no method"}' % id.group(1))
