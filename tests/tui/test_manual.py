"""The manual page and the bash completion come from the program's own tables."""
import re
import shutil
import subprocess

import pytest

from .conftest import PROGRAM


def out(*args):
    return subprocess.run([PROGRAM, *args], check=True, capture_output=True, text=True).stdout


def test_every_command_and_option_is_in_the_manual():
    page = out("manual").replace("\\-", "-")
    commands = re.findall(r"^  (\w+) ", out("--help").split("Commands:")[1].split("Policies:")[0], re.M)
    assert len(commands) > 8
    for c in commands:
        assert f'.SS "refreshkv {c}' in page
        for option in re.findall(r"^ +(?:-\w, )?--([\w-]+)", out(c, "--help"), re.M):
            assert option == "help" or f"--{option}" in page, (c, option)


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is not installed")
def test_the_manual_is_clean_roff():
    r = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=out("manual"), capture_output=True, text=True)
    assert r.stderr == ""


def complete(tmp_path, *words):
    script = tmp_path / "completion.bash"
    script.write_text(out("manual", "--completion"))
    line = " ".join(repr(w) for w in ("refreshkv", *words))
    bash = f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words)}; _refreshkv; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return subprocess.run(["bash", "-c", bash], check=True, capture_output=True, text=True).stdout.split()


def test_completion(tmp_path):
    assert set(complete(tmp_path, "re")) == {"replay"}
    assert "--policy" in complete(tmp_path, "chat", "--po")
    assert "refreshkv" in complete(tmp_path, "chat", "--policy", "re")
    assert "mono" in complete(tmp_path, "chat", "--theme", "")
