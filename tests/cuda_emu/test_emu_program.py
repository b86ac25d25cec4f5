"""The whole program on the emulated device: what a user sees where a GPU is missing, does not fit, or fails in mid-sentence."""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TESTS = pathlib.Path(os.environ.get("REFRESHKV", ROOT / "build/refreshkv")).resolve().parent / "tests"
MACHINE = "1 13000 9 0 8000000000"	# devices, driver, capability, bytes of memory


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny") / "tiny.gguf"
    subprocess.run([TESTS / "tool_tiny", path], check=True)
    return path


@pytest.fixture
def run(tiny, tmp_path):
    def call(*args, machine=MACHINE, fail=None, command="run"):
        env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "EMU_MACHINE": machine}
        env.update({k: os.environ[k] for k in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS") if k in os.environ})
        if fail:
            env["EMU_FAIL"] = fail
        model = () if command == "replay" else ("-m", tiny)
        return subprocess.run([TESTS / "tool_emu", command, *model, *map(str, args)], capture_output=True, env=env, timeout=120,
                              stdin=subprocess.DEVNULL)

    return call


CANNOT = [
    ("0 0 0 0 0", "no CUDA driver"),
    ("1 12040 8 0 8000000000", "the driver is for CUDA 12.4, 13.0 is needed"),
    ("0 13000 8 0 8000000000", "no CUDA-capable device is detected"),
    ("1 13000 7 5 8000000000", "compute capability 7.5, 8.0 is needed"),
]


@pytest.mark.parametrize("machine,why", CANNOT)
def test_a_gpu_that_cannot_be_used(run, machine, why):
    r = run("-p", "hello", "-n", 3, "--device", "cuda:0", machine=machine)
    assert (r.returncode, r.stdout) == (2, b"")
    assert r.stderr.decode() == f"refreshkv: device cuda:0: {why}; --device cpu always works\n"
    r = run("-p", "hello", "-n", 3, "--json", machine=machine)
    assert r.returncode == 0, r.stderr
    assert f'"device":"cpu ({why})"' in r.stdout.decode()


def test_the_gpu_is_used(run):
    r = run("-p", "hello", "-n", 3, "--json")
    assert r.returncode == 0, r.stderr
    assert b'"device":"cuda:0 emulated device","isa":"sm_90"' in r.stdout


@pytest.mark.parametrize("memory,part", [(100000, "MB are free; take a smaller model or --device cpu"), (1_000_000, " MB are free; lower --ctx, -n, --chunk or the number of lanes")])
def test_memory_of_the_gpu(run, memory, part):
    r = run("-p", "hello", "-n", 3, machine=f"1 13000 9 0 {memory}")
    assert (r.returncode, r.stdout) == (4, b"")
    assert r.stderr.count(b"\n") == 1 and part in r.stderr.decode()


# The 9th wait comes in the prompt, the 60th in the reply; a graph is launched per step.
@pytest.mark.parametrize("fail,part", [("cudaStreamSynchronize 60 214", "uncorrectable ECC error encountered"),
                                       ("cudaGraphLaunch 12 700", "cudaGraphLaunch: an illegal memory access was encountered")])
def test_text_and_trace_survive_a_lost_device(run, tmp_path, fail, part):
    trace = tmp_path / "t.jsonl"
    args = ("-q", "-p", "hello", "-n", 30, "--device", "cuda:0")
    whole = run(*args).stdout
    r = run(*args, "--trace", trace, fail=fail)
    assert r.returncode == 1
    assert r.stderr.count(b"\n") == 1
    assert r.stderr.startswith(b"refreshkv: GPU 0 (cuda:0 emulated device): ") and part in r.stderr.decode()
    text = r.stdout.rstrip(b"\n")
    assert text and len(text) < len(whole) and whole.startswith(text)
    again = run(trace, command="replay")
    assert again.stdout.rstrip(b"\n") == text
