"""What the command-line tests share: the program, a tiny random model, the default model where it was fetched.

$REFRESHKV is the program, $RK_MODEL the default model; both have defaults that fit a checkout after `make test`.  Every
command runs with an empty environment of its own (no XDG paths of the user), standard input closed unless given, and a
time limit.
"""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = pathlib.Path(os.environ.get("REFRESHKV", ROOT / "build/refreshkv")).resolve()
TINY_TOOL = PROGRAM.parent / "tests/tool_tiny"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
MODEL = pathlib.Path(os.environ.get("RK_MODEL", CACHE / "refreshkv/models/SmolLM2-135M-Instruct.Q4_1.gguf"))


class Program:
    """refreshkv(ARGS..., stdin=bytes or None) -> CompletedProcess with bytes in stdout and stderr."""

    def __init__(self, home):
        self.env = {"HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "RK_ISA"):
            if name in os.environ:
                self.env[name] = os.environ[name]

    def __call__(self, *args, stdin=None, env=(), timeout=600, **kw):
        source = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
        return subprocess.run([PROGRAM, *map(str, args)], capture_output=True, env={**self.env, **dict(env)},
                              timeout=timeout, **source, **kw)

    def ok(self, *args, **kw):
        """As a call, and it must succeed."""
        r = self(*args, **kw)
        assert r.returncode == 0, (args, r.returncode, r.stderr.decode())
        return r

    def popen(self, *args, **kw):
        return subprocess.Popen([PROGRAM, *map(str, args)], env=self.env, **kw)


@pytest.fixture(scope="session")
def refreshkv(tmp_path_factory):
    return Program(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def make_tiny(tmp_path_factory):
    """make_tiny(seed=2, n_ctx=64) -> path of a tiny model."""
    folder = tmp_path_factory.mktemp("tiny")

    def make(**options):
        args = [f"{k}={v}" for k, v in sorted(options.items())]
        path = folder / ("-".join(["tiny"] + args) + ".gguf")
        if not path.exists():
            subprocess.run([TINY_TOOL, path, *args], check=True)
        return path

    return make


@pytest.fixture(scope="session")
def tiny(make_tiny):
    return make_tiny()


@pytest.fixture(scope="session")
def model():
    """The default model; tests that need its weights are skipped without it."""
    if not MODEL.exists():
        pytest.skip(f"{MODEL} is not there: `make model` fetches it")
    return MODEL


@pytest.fixture
def text(tmp_path):
    """A file of some 2,500 tiny-model tokens."""
    path = tmp_path / "text.txt"
    path.write_text("".join(f"The {i}th lighthouse keeper wrote {i * i} lines about the sea. " for i in range(40)))
    return path


def one_line(r, code):
    """The run failed with this status and said why in one line on stderr, and printed nothing on stdout."""
    err = r.stderr.decode()
    assert r.returncode == code, (r.returncode, err)
    assert err.startswith("refreshkv: ") and err.endswith("\n") and err.count("\n") == 1, err
    assert r.stdout == b""
    return err
