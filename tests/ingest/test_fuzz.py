from pathlib import Path

import pytest

from benchmarks.fuzz_readers import (
    READ,
    REFUSED,
    Outcome,
    damaged_seed,
    keep,
    main,
    outcome_of,
    write,
)
from benchmarks.fuzzing.seeds import Seed, made_seeds, seeds
from layerscope.errors import InputError
from layerscope.ingest import read
from layerscope.ingest.formats import Format
from layerscope.ingest.read import ReadOptions, read_trace
from tests.ingest.packed import written


@pytest.mark.parametrize("given", made_seeds(), ids=lambda each: each.format)
def test_what_is_damaged_was_whole(given: Seed, tmp_path: Path) -> None:
    """Each seed is read as its format, with nothing dropped and nothing mended."""
    trace = read_trace(write(given, tmp_path), ReadOptions(cache=False))
    assert given.format == trace.source.format
    assert trace.kernels.height
    assert {note.kind for note in trace.notes} <= {"untrusted", "doubted"}


def test_there_is_a_seed_of_every_format() -> None:
    """No reader is left out."""
    assert {each.format for each in made_seeds()} == set(Format)


def test_damaged_traces_are_read_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, no wait, no flood of memory, whatever is in a file."""
    arguments = ["--inputs", "400", "--seed", "7", "--keep", str(tmp_path)]
    code = main(arguments)
    said = capsys.readouterr().out
    assert code == 0, said
    assert "400 damaged traces" in said


def test_inputs_can_be_had_again() -> None:
    """A number and a seed name an input for good; others differ."""
    whole = seeds()
    first, again, other = (damaged_seed(10, seed, whole) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def raised_while_reading(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> str:
    """The outcome where a reader raises `error`."""

    def fail(*_given: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr(read, "read_traces", fail)
    return outcome_of(Path("trace"))


def test_what_is_no_input_error_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its type and place are said."""
    outcome = raised_while_reading(KeyError("dur"), monkeypatch)
    assert outcome.startswith("KeyError at test_fuzz.py:")


def test_a_message_of_several_lines_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Users are told in one."""
    outcome = raised_while_reading(InputError("a\nb"), monkeypatch)
    assert outcome == "a message of several lines"


def test_waiting_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """An alarm ends what takes too long."""
    monkeypatch.setattr("benchmarks.fuzz_readers.LIMIT_S", 1)

    def wait(*_given: object, **_options: object) -> None:
        while True:
            pass

    monkeypatch.setattr(read, "read_traces", wait)
    assert outcome_of(Path("trace")).startswith("TooSlowError at test_fuzz.py:")


def test_files_are_read_or_refused(tmp_path: Path) -> None:
    """Both are fine."""
    whole = seeds()[0]
    assert outcome_of(write(whole, tmp_path)) == READ
    assert outcome_of(written(tmp_path / "text", b"text")) == REFUSED


def test_a_failing_input_is_kept(tmp_path: Path) -> None:
    """As the reader was given it."""
    folder = keep(Outcome(7, Format.ROCPROF_CSV, "failed"), 1, tmp_path)
    given = damaged_seed(7, 1, seeds())
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == given.files
