"""The rules of the house that no linter checks."""

import ast
import configparser
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path

import pytest

import layerscope

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "layerscope"

BACKENDS = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("backends/*/src"))
BACKEND_TESTS = [f"{Path(path).parent}/tests" for path in BACKENDS]

MODULE_LINES = 300
TEST_LINES = 700
FUNCTION_LINES = 50
HEAVY = ("torch", "polars", "numpy")
TORCH_FREE = (
    *("analyze", "ingest", "render", "replays", "report", "run", "run_header"),
    *("study", "timeline", "trace"),
)
FORBIDDEN_NAMES = {"base", "common", "helpers", "manager", "utils"}


def sources(*folders: str) -> list[Path]:
    """Every Python file below the given folders of the checkout."""
    return sorted(path for name in folders for path in (ROOT / name).rglob("*.py"))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function of a file, methods and nested ones too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def module_name(path: Path) -> str:
    """``layerscope.render.console`` for its file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def contract(name: str, option: str) -> list[str]:
    """The entries of one option of a contract in .importlinter, line by line."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter", encoding="utf-8")
    return parser[f"importlinter:contract:{name}"][option].split("\n")[1:]


def loaded_after(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after `code`."""
    report = f"{code}\nimport sys\nprint('\\n' + ' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", report],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.split(".")[0] for name in done.stdout.splitlines()[-1].split()}


def test_modules_are_short() -> None:
    """A module has at most 300 lines, a test module at most 700."""
    modules = sources("layerscope", "benchmarks", "tools", *BACKENDS)
    limits = dict.fromkeys(modules, MODULE_LINES)
    limits |= dict.fromkeys(sources("tests", *BACKEND_TESTS), TEST_LINES)
    lengths = {path: len(path.read_bytes().splitlines()) for path in limits}
    assert {
        str(path.relative_to(ROOT)): length
        for path, length in lengths.items()
        if length > limits[path]
    } == {}


def test_functions_are_short() -> None:
    """No function has more than 50 lines after its signature, docstring included.

    A signature may be long where it is the list of a command's options.
    """
    assert [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sources("layerscope", "benchmarks", "tools", "tests", "backends")
        for node in functions(path)
        if (node.end_lineno or 0) - node.body[0].lineno + 1 > FUNCTION_LINES
    ] == []


def test_modules_are_named_after_what_they_hold() -> None:
    """No module is called by a name that says nothing."""
    names = (module_name(path).split(".") for path in sources("layerscope", "backends"))
    assert FORBIDDEN_NAMES.isdisjoint(part for parts in names for part in parts)


def test_every_test_says_what_must_hold() -> None:
    """Every test function has a docstring."""
    assert [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for path in sources("tests", *BACKEND_TESTS)
        for node in functions(path)
        if node.name.startswith("test_") and not ast.get_docstring(node)
    ] == []


def test_public_names_are_sorted() -> None:
    """`__all__` is sorted and names nothing twice."""
    assert layerscope.__all__ == sorted(set(layerscope.__all__))


def test_public_names_are_complete() -> None:
    """What type checkers import, what loads lazily, and `__all__` are the same."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    typed = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == layerscope._HOMES
    assert {*typed, "__version__"} == set(layerscope.__all__)


@pytest.mark.parametrize("name", layerscope.__all__)
def test_public_names_load(name: str) -> None:
    """Every public name can be had from the package, and is listed by dir()."""
    home = layerscope._HOMES.get(name, "layerscope")
    assert getattr(layerscope, name) is getattr(import_module(home), name)
    assert name in dir(layerscope)


def test_unknown_names_are_refused() -> None:
    """A name that the package does not export raises the usual error."""
    with pytest.raises(AttributeError, match="no attribute 'profile_everything'"):
        _ = layerscope.profile_everything


def test_every_error_is_public() -> None:
    """Users can catch every class of the error tree by its public name."""
    errors = import_module("layerscope.errors")
    classes = {name for name, item in vars(errors).items() if isinstance(item, type)}
    assert classes <= set(layerscope.__all__)


def test_import_loads_nothing_heavy() -> None:
    """``import layerscope`` loads neither torch nor polars."""
    assert loaded_after("import layerscope").isdisjoint(HEAVY)


def test_help_loads_nothing_heavy() -> None:
    """``layerscope --help`` loads neither torch nor polars."""
    code = (
        "import runpy, sys\n"
        "sys.argv = ['layerscope', '--help']\n"
        "try:\n"
        "    runpy.run_module('layerscope', run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code"
    )
    assert loaded_after(code).isdisjoint(HEAVY)


def test_reading_and_rendering_load_no_torch() -> None:
    """Importing all that works on recorded runs does not load torch."""
    names = [
        module_name(path)
        for path in sources("layerscope")
        if path.relative_to(PACKAGE).parts[0].removesuffix(".py") in TORCH_FREE
        and path.stem != "__init__"
    ]
    assert "torch" not in loaded_after("\n".join(f"import {name}" for name in names))


def test_every_module_is_under_the_import_contract() -> None:
    """Each module, or its package, has a line in the layers of .importlinter."""
    listed = set(
        re.findall(r"layerscope[\w.]+", " ".join(contract("layers", "layers")))
    )
    free = {"layerscope.__init__", "layerscope.__main__", "layerscope.layers.__init__"}
    assert [
        name
        for name in map(module_name, sources("layerscope"))
        if name not in free
        and not any(name == known or name.startswith(f"{known}.") for known in listed)
    ] == []


def test_the_torch_free_part_is_under_contract() -> None:
    """Every module that must not reach torch is a source of that contract."""
    present = {
        f"layerscope.{name}"
        for name in TORCH_FREE
        if (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()
    }
    assert set(contract("no-torch", "source_modules")) == present


def test_changelog_takes_entries() -> None:
    """CHANGELOG.md has a section for what is not released, and it is not empty."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    _, found, rest = text.partition("\n## [Unreleased]\n")
    assert found
    assert re.search(r"^- \S", rest.partition("\n## ")[0], flags=re.MULTILINE)


def test_version_is_that_of_the_distribution() -> None:
    """The installed distribution has the version that the package says."""
    try:
        installed = metadata.version("layerscope")
    except metadata.PackageNotFoundError:
        pytest.skip("layerscope runs from the checkout, not installed")
    assert installed == layerscope.__version__
