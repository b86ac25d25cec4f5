"""What the screen's tests share: the real program in a real pseudo-terminal, read by a terminal emulator.

`term(ARGS...)` starts refreshkv with a pinned environment (size, TERM, locale, no paths of the user) and feeds what it writes
to pyte.  $REFRESHKV is the program; tests that need a model use a tiny random one, so that no weights are fetched.
"""
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pyte
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = pathlib.Path(os.environ.get("REFRESHKV", ROOT / "build/refreshkv")).resolve()
TINY_TOOL = PROGRAM.parent / "tests/tool_tiny"
DATA = pathlib.Path(__file__).parent / "data"
PATIENCE = float(os.environ.get("RK_TEST_PATIENCE", "60"))	# seconds until a screen that does not come is a failure


class Term:
    def __init__(self, argv, cols=120, rows=40, env=(), stdin=None, cwd=None):
        self.screen = pyte.Screen(cols, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.status = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
            if stdin is not None:
                os.dup2(os.open(stdin, os.O_RDONLY), 0)
            if cwd:
                os.chdir(cwd)
            os.execve(argv[0], [str(a) for a in argv], dict(env))
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def read(self, seconds):
        """Takes what comes within that time; False when the program has closed the terminal."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            data = b""
        self.raw += data
        # pyte 0.8 does not know these two private forms and would print their ends
        self.stream.feed(re.sub(rb"\x1b\[>[0-9;]*[a-zA-Z]|\x1b\[\?[0-9;]*\$p", b"", data))
        return bool(data)

    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display)

    def wait(self, what, seconds=PATIENCE):
        """Until the screen holds a text (or a function of it is true)."""
        test = what if callable(what) else lambda s: what in s
        end = time.monotonic() + seconds
        while not test(self.text()):
            left = end - time.monotonic()
            if left <= 0 or not self.read(min(left, 0.2)):
                raise AssertionError(f"not on the screen: {what}\n{self.text()}")
        return self.settle(0.1)	# the rest of the frame

    def settle(self, seconds=0.3):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.read(0.05):
            pass
        return self.text()

    def send(self, keys):
        os.write(self.fd, keys if isinstance(keys, bytes) else keys.encode())

    def resize(self, cols, rows):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        self.screen.resize(rows, cols)

    def kill(self, sig):
        os.kill(self.pid, sig)

    def end(self, seconds=PATIENCE):
        """Waits for the program to end; its exit status (negative: the signal)."""
        end = time.monotonic() + seconds
        while self.status is None:
            pid, st = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(st)
                while self.read(0):
                    if not select.select([self.fd], [], [], 0)[0]:
                        break
            elif time.monotonic() > end:
                raise AssertionError(f"does not end\n{self.text()}")
            else:
                self.read(0.05)
        return self.status

    def close(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def term(tmp_path, home):
    opened = []
    home.mkdir()

    def start(*args, cols=120, rows=40, env=(), stdin=None, program=PROGRAM):
        e = {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "TZ": "UTC",
             "LSAN_OPTIONS": os.environ.get("LSAN_OPTIONS", ""), **dict(env)}
        e = {k: v for k, v in e.items() if v is not None}
        t = Term([program, *args], cols, rows, e, stdin, tmp_path)
        opened.append(t)
        return t

    yield start
    for t in opened:
        t.close()


@pytest.fixture
def chat(term, tiny, script):
    """A chat with the tiny model: chat(ARGS..., pace=tokens per second, where a test must meet the reply running)."""
    def start(*args, pace=0, **kw):
        return term("chat", "-m", tiny, "--threads", "1", "--keys", script(f":pace {pace}"), *args, **kw)
    return start


@pytest.fixture
def replay(term):
    return lambda *args, trace="session.jsonl", **kw: term("replay", DATA / trace, "--speed", "0", *args, **kw)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    subprocess.run([TINY_TOOL, path], check=True)
    return path


@pytest.fixture
def script(tmp_path):
    """script("key Tab", "wait idle") -> path of a key script."""
    def write(*lines):
        path = tmp_path / "keys"
        path.write_text("".join(line + "\n" for line in lines))
        return path
    return write
