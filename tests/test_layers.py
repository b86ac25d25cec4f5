"""The layers of src/: an include may only point to the left (docs/ARCHITECTURE.md)."""
import pathlib
import re

SRC = pathlib.Path(__file__).parent.parent / "src"
ORDER = ["base", "model", "policy", "cache", "backend", "cpu", "engine", "trace", "eval", "tui", "cmd"]


def includes():
    for path in sorted(SRC.glob("*/*.[ch]")):
        for target in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.M):
            yield path.relative_to(SRC), target


def test_every_folder_has_a_place():
    assert {p.name for p in SRC.iterdir() if p.is_dir()} <= set(ORDER)


def test_includes_name_the_layer():
    assert [f"{p}: {t}" for p, t in includes() if t.split("/")[0] not in ORDER or not (SRC / t).exists()] == []


def test_includes_point_left():
    wrong = [f"{p} includes {t}" for p, t in includes()
             if t.split("/")[0] in ORDER and ORDER.index(t.split("/")[0]) > ORDER.index(p.parts[0])]
    assert wrong == []
