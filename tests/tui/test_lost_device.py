"""A GPU that fails in mid-reply, behind the screen: the program on the emulated device (tests/cuda_emu), where a call is made to fail."""
import re
import subprocess

import pytest

from .conftest import TINY_TOOL
from .test_terminal import restored

EMULATED = TINY_TOOL.parent / "tool_emu"
MACHINE = "1 13000 9 0 8000000000"	# devices, driver, capability, bytes of memory


# A graph is launched per step; the 60th wait comes in the reply.
@pytest.mark.parametrize("fail,says", [("cudaGraphLaunch 12 700", "cudaGraphLaunch: an illegal memory access was encountered"),
                                       ("cudaStreamSynchronize 60 214", "uncorrectable ECC error encountered")])
def test_the_terminal_the_text_and_the_trace_survive(term, tiny, tmp_path, fail, says):
    trace = tmp_path / "t.jsonl"
    t = term("chat", "-m", tiny, "--device", "cuda:0", "-n", "60", "--trace", trace, program=EMULATED,
             env={"EMU_MACHINE": MACHINE, "EMU_FAIL": fail})
    said = lambda s: re.sub(r"\s+", " ", " ".join(line.split("│")[0] for line in s.split("\n")))
    t.wait("Type a question")
    t.send("hello\r")
    t.wait(lambda s: says in said(s))
    assert "error: GPU 0 (cuda:0 emulated device): " in said(t.text())
    t.send("again\r")	# the device is gone for good; the screen lives on
    t.wait(lambda s: said(s).count(says) == 2)
    shown = t.text()
    t.send("\x04")
    assert t.end() == 0
    restored(t)
    r = subprocess.run([EMULATED, "replay", trace], capture_output=True, stdin=subprocess.DEVNULL, check=False)
    text = r.stdout.decode().strip("\n")
    assert text and text in shown
    assert says in r.stderr.decode()
