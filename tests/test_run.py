import errno
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope import run_header
from layerscope.errors import InputError, RecordError
from layerscope.layers.draft_spec import DraftSpec
from layerscope.run import (
    DRAFT_FOLDER,
    EDGES_FILE,
    HEADER_FILE,
    KERNELS_FILE,
    SAMPLES_FILE,
    STAMPS_FILE,
    RunWriter,
    load,
)
from layerscope.run_header import FORMAT_VERSION, IdleSwitch
from layerscope.schema import EDGES, KERNELS, SAMPLES, STAMPS, empty
from tests import handmade


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The hand-made run on disk."""
    return handmade.write(tmp_path / "run")


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Apply `change` to the parsed run.json of a run."""
    path = folder / HEADER_FILE
    header = json.loads(path.read_text(encoding="utf-8"))
    change(header)
    path.write_text(json.dumps(header), encoding="utf-8")


def fill_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, every write to disk fails as on a full one."""

    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)


def test_a_run_comes_back_as_it_was_written(folder: Path) -> None:
    """Header and both frames are equal after a round trip."""
    run = load(str(folder))
    assert run.path == folder
    assert run.header == handmade.header(status="complete", status_reason="")
    assert_frame_equal(run.samples, handmade.samples())
    order = ["arm", "experiment", "capture", "replay", "node"]
    assert_frame_equal(run.kernels, handmade.kernels().sort(order))


def test_a_run_holds_four_files(folder: Path) -> None:
    """Nothing temporary is left beside the four files of a run."""
    names = {path.name for path in folder.iterdir()}
    assert names == {HEADER_FILE, SAMPLES_FILE, KERNELS_FILE, EDGES_FILE}


def test_the_header_names_its_format_version(folder: Path) -> None:
    """run.json says in which version of the format it is written."""
    header = json.loads((folder / HEADER_FILE).read_text(encoding="utf-8"))
    assert header["format_version"] == FORMAT_VERSION


def test_a_killed_writer_leaves_a_partial_run(tmp_path: Path) -> None:
    """What was checkpointed is readable, without the rest, and says it is partial."""
    writer = RunWriter(tmp_path / "run", handmade.header())
    writer.add_samples(handmade.samples(("anchor",)))
    writer.checkpoint()
    writer.add_samples(handmade.samples(("after",)))
    run = load(tmp_path / "run")
    assert run.header.status == "partial"
    assert run.header.status_reason == (
        "still running, or it could not finish: killed, or the disk was full"
    )
    assert_frame_equal(run.samples, handmade.samples(("anchor",)))
    assert_frame_equal(run.kernels, empty(KERNELS))


def test_finishing_says_how_it_ended(tmp_path: Path) -> None:
    """`finish` returns what is then on disk, with the status and the reason."""
    writer = RunWriter(tmp_path, handmade.header())
    finished = writer.finish("partial", "interrupted")
    assert finished.header.status_reason == "interrupted"
    assert load(tmp_path).header == finished.header
    assert_frame_equal(finished.samples, empty(SAMPLES))


def test_edges_are_kept_beside_the_kernels(tmp_path: Path) -> None:
    """What was set last is what is loaded; a run of an older format has none."""
    edges = pl.DataFrame(
        {
            "arm": ["a", "a"],
            "experiment": ["captured", "captured"],
            "source": [0, 1],
            "target": [1, 2],
            "programmatic": [False, True],
            "from_port": [0, 1],
            "to_port": [0, 0],
        }
    )
    writer = RunWriter(tmp_path, handmade.header())
    writer.set_edges(edges.head(1))
    writer.set_edges(edges)
    run = writer.finish("complete")
    assert_frame_equal(run.edges, edges)
    (tmp_path / EDGES_FILE).unlink()
    assert_frame_equal(load(tmp_path).edges, empty(EDGES))


def test_stamps_are_kept_where_there_are_some(tmp_path: Path) -> None:
    """A run without them has no file of them, and loads as one of no stamps."""
    stamps = pl.DataFrame(
        {
            "arm": ["a, with stamps"] * 2,
            "reading": [0, 0],
            "role": ["qkv"] * 2,
            "block": [0, 1],
            "begun_ns": [0, None],
            "waited_ns": [10, None],
            "triggered_ns": [20, None],
            "ended_ns": [30, None],
        },
        schema=STAMPS,
    )
    writer = RunWriter(tmp_path, handmade.header())
    writer.checkpoint()
    assert not (tmp_path / STAMPS_FILE).exists()
    assert_frame_equal(load(tmp_path).stamps, empty(STAMPS))
    writer.set_stamps(stamps)
    assert_frame_equal(writer.finish("complete").stamps, stamps)
    assert_frame_equal(load(tmp_path).stamps, stamps)


def test_a_frame_of_another_shape_is_refused(tmp_path: Path) -> None:
    """A frame that does not conform never gets into a run."""
    writer = RunWriter(tmp_path, handmade.header())
    with pytest.raises(RecordError, match=r"^samples: lacks duration_ns"):
        writer.add_samples(handmade.samples().drop("duration_ns"))
    with pytest.raises(RecordError, match=r"^kernels: has unknown color"):
        writer.add_kernels(handmade.kernels().with_columns(color=pl.lit(1)))
    numbers = empty(EDGES).with_columns(pl.col("programmatic").cast(pl.Int64))
    with pytest.raises(
        RecordError, match=r"^edges: programmatic is Int64, not true or false"
    ):
        writer.set_edges(numbers)


def test_a_full_disk_keeps_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENOSPC is one line that says what is kept; the earlier samples are readable."""
    path = tmp_path / "run"
    writer = RunWriter(path, handmade.header())
    writer.add_samples(handmade.samples(("anchor",)))
    writer.checkpoint()
    writer.add_samples(handmade.samples(("after",)))
    with monkeypatch.context() as patch:
        fill_disk(patch)
        with pytest.raises(RecordError) as caught:
            writer.checkpoint()
    assert str(caught.value) == (
        f"disk full while writing {path}: what was recorded up to round 5 of capture 2 "
        "is kept there; free some space and run again"
    )
    assert_frame_equal(load(path).samples, handmade.samples(("anchor",)))
    assert len(list(path.iterdir())) == 4


def test_a_full_disk_counts_what_was_recorded_among_the_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line follows the last good checkpoint, whatever kind of rows it brought."""
    writer = RunWriter(tmp_path / "run", handmade.header())
    writer.add_samples(handmade.samples(("anchor",)))
    kernels = handmade.kernels()
    writer.add_kernels(kernels.filter((pl.col("capture") == 1) & (pl.col("round") < 2)))
    writer.checkpoint()
    writer.add_kernels(kernels.filter(pl.col("capture") > 1))
    fill_disk(monkeypatch)
    with pytest.raises(RecordError, match="recorded up to round 1 of capture 1 is"):
        writer.checkpoint()


def test_a_disk_full_from_the_start_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an earlier checkpoint the line does not promise samples."""
    writer = RunWriter(tmp_path, handmade.header())
    writer.add_samples(handmade.samples())
    fill_disk(monkeypatch)
    with pytest.raises(RecordError, match=r"disk full .* nothing could be kept"):
        writer.checkpoint()
    assert list(tmp_path.iterdir()) == []


def test_another_write_error_gives_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails for another reason is not called full."""

    def fsync(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    writer = RunWriter(tmp_path, handmade.header())
    with pytest.raises(RecordError, match=r"cannot write .* \(Input/output error\)"):
        writer.checkpoint()


def test_a_used_folder_is_refused(folder: Path) -> None:
    """A run never overwrites another one."""
    with pytest.raises(InputError, match="already holds files; choose another"):
        RunWriter(folder, handmade.header())


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """An output below a file is one line with the cause."""
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cannot create .*file/run: Not a directory"):
        RunWriter(tmp_path / "file" / "run", handmade.header())


def test_a_missing_run_names_the_closest_one(folder: Path) -> None:
    """A misspelt path gets the run that was probably meant."""
    wanted = folder.with_name("rum")
    expected = f"no run at {wanted}; did you mean {folder}?"
    with pytest.raises(InputError, match=f"^{re.escape(expected)}$"):
        load(wanted)


def test_a_missing_run_without_neighbours(tmp_path: Path) -> None:
    """Where nothing is close, nothing is suggested."""
    with pytest.raises(InputError, match=r"no run at \S+/none/run$"):
        load(tmp_path / "none" / "run")


def test_a_folder_of_runs_names_the_newest(folder: Path) -> None:
    """The folder above runs is no run, but leads to the last one in it."""
    expected = f"holds no run.json; did you mean {folder}?"
    with pytest.raises(InputError, match=f"{re.escape(expected)}$"):
        load(folder.parent)


def test_a_file_leads_to_its_run(folder: Path) -> None:
    """Naming run.json itself leads to the folder; other files may be traces."""
    expected = f"is a file, and a run is a folder; did you mean {folder}?"
    with pytest.raises(InputError, match=f"{re.escape(expected)}$"):
        load(folder / HEADER_FILE)
    with pytest.raises(InputError, match="layerscope analyze reads traces of other"):
        load(folder / SAMPLES_FILE)


@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1}}', b"\xff\xfe"])
def test_a_malformed_header_is_one_line(folder: Path, content: bytes) -> None:
    """A run.json that is no JSON is named in one line."""
    (folder / HEADER_FILE).write_bytes(content)
    with pytest.raises(RecordError) as caught:
        load(folder)
    assert str(caught.value).startswith(f"{folder / HEADER_FILE} is damaged (")
    assert "\n" not in str(caught.value)


def test_a_header_with_a_wrong_field_names_it(folder: Path) -> None:
    """A field of the wrong type is named with its path in the file."""
    edit(folder, lambda header: header["study"].update(samples="many"))
    with pytest.raises(RecordError, match=r"Expected `int`.*\$\.study\.samples"):
        load(folder)


@pytest.mark.parametrize("version", [None, "1", 0])
def test_a_header_without_version_is_refused(folder: Path, version: object) -> None:
    """Without a format version nothing is guessed."""
    edit(folder, lambda header: header.update(format_version=version))
    with pytest.raises(RecordError, match="names no format version"):
        load(folder)


def test_json_that_is_no_object_is_refused(folder: Path) -> None:
    """Valid JSON that is no run is refused as well."""
    (folder / HEADER_FILE).write_text("[1]", encoding="utf-8")
    with pytest.raises(RecordError, match="names no format version"):
        load(folder)


def test_a_newer_run_asks_for_a_newer_layerscope(folder: Path) -> None:
    """A run of a later format is not read in part."""
    edit(folder, lambda header: header.update(format_version=FORMAT_VERSION + 1))
    with pytest.raises(RecordError, match="written by a newer layerscope"):
        load(folder)


def test_an_older_run_is_migrated_step_by_step(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step makes the next version of the header, until it is today's."""
    today = run_header.FORMAT_VERSION
    monkeypatch.setattr(run_header, "FORMAT_VERSION", today + 2)
    steps = {
        today: lambda old: old | {"format_version": today + 1, "warnings": ["one"]},
        today + 1: lambda old: old | {"warnings": [*old["warnings"], "two"]},
    }
    monkeypatch.setattr(run_header, "_MIGRATIONS", steps)
    assert load(folder).header.warnings == ["one", "two"]


def test_a_run_of_version_1_is_one_of_a_layer(folder: Path) -> None:
    """Its spec had no type, and there was nothing else to measure."""
    path = folder / HEADER_FILE
    header = msgspec.json.decode(path.read_bytes())
    assert header["study"]["spec"].pop("type") == "layer"
    header["study"].pop("draft")
    path.write_bytes(msgspec.json.encode(header | {"format_version": 1}))
    loaded = load(folder)
    assert loaded.header.study == handmade.header().study
    assert loaded.header.format_version == FORMAT_VERSION
    assert loaded.draft is None


def test_a_run_without_idle_switches_has_none(folder: Path) -> None:
    """One that was written before there was such a field."""
    edit(folder, lambda header: header.pop("idle_switches"))
    assert load(folder).header.idle_switches == []


def test_idle_switches_are_kept(tmp_path: Path) -> None:
    """As they were told."""
    idle = IdleSwitch(backend="fused", switch="early", reason="there are no experts")
    path = handmade.write(tmp_path / "run", idle_switches=[idle])
    assert load(path).header.idle_switches == [idle]


def test_the_rows_of_an_arm_can_be_taken_out_again(tmp_path: Path) -> None:
    """Those of others stay."""
    writer = RunWriter(tmp_path / "run", handmade.header())
    writer.add_samples(handmade.samples())
    writer.add_kernels(handmade.kernels())
    writer.forget(["fused", "no such arm"])
    run = writer.finish("complete")
    others = pl.col("arm") != "fused"
    assert_frame_equal(run.samples, handmade.samples().filter(others))
    assert_frame_equal(
        run.kernels, handmade.kernels().filter(others), check_row_order=False
    )


def test_the_draft_of_a_run_is_loaded_with_it(folder: Path) -> None:
    """It is a run in a folder of its own within the layer's."""
    spec = DraftSpec(model="paper-moe", vocab_size=64)
    study = msgspec.structs.replace(handmade.header().study, spec=spec)
    writer = RunWriter(folder / DRAFT_FOLDER, handmade.header(study=study))
    writer.finish("partial", "interrupted")
    draft = load(folder).draft
    assert draft is not None
    assert draft.header.study.spec == spec
    assert draft.header.status_reason == "interrupted"
    assert draft.path == folder / DRAFT_FOLDER


def test_a_run_shows_in_a_line_what_it_holds(folder: Path) -> None:
    """A prompt that prints a run is not flooded with its header."""
    run = load(folder)
    counts = f"{run.samples.height} samples, {run.kernels.height} kernels"
    assert repr(run) == f"<Run {folder}: {run.header.status}, {counts}>"


def test_a_damaged_draft_does_not_hide_its_layer(folder: Path) -> None:
    """The layer's run is whole, and says what could not be read."""
    writer = RunWriter(folder / DRAFT_FOLDER, handmade.header())
    writer.finish("complete")
    (folder / DRAFT_FOLDER / SAMPLES_FILE).unlink()
    run = load(folder)
    assert run.draft is None
    assert run.samples.height == handmade.samples().height
    assert run.header.warnings[-1] == (
        f"the draft is left out: {folder / DRAFT_FOLDER / SAMPLES_FILE} is missing; "
        "the run is not whole"
    )


@pytest.mark.parametrize("part", [[], None, {}, {"study": 1}, {"study": {"spec": 1}}])
def test_a_header_of_version_1_that_is_none_is_one_line(
    folder: Path, part: object
) -> None:
    """A migration meets anything that a file may hold."""
    document = {"format_version": 1, **(part if isinstance(part, dict) else {})}
    (folder / HEADER_FILE).write_bytes(msgspec.json.encode(document))
    with pytest.raises(RecordError, match="is not as layerscope writes it"):
        load(folder)


@pytest.mark.parametrize("name", [SAMPLES_FILE, KERNELS_FILE])
@pytest.mark.parametrize("kept", [0, 3, 100, -1, -100])
def test_a_truncated_table_is_one_line(folder: Path, name: str, kept: int) -> None:
    """A table cut anywhere is named in one line."""
    path = folder / name
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(RecordError) as caught:
        load(folder)
    assert str(caught.value).startswith(f"{path} is damaged (")
    assert "\n" not in str(caught.value)


def test_a_missing_table_is_named(folder: Path) -> None:
    """A run without one of its tables is not whole."""
    (folder / SAMPLES_FILE).unlink()
    with pytest.raises(RecordError, match=r"samples\.parquet is missing"):
        load(folder)


def test_a_table_of_another_schema_is_named(folder: Path) -> None:
    """A table with other columns names the file and the columns."""
    path = folder / KERNELS_FILE
    handmade.kernels().drop("node").write_parquet(path)
    with pytest.raises(RecordError, match=r"kernels\.parquet: lacks node"):
        load(folder)


def test_the_header_is_made_of_plain_values() -> None:
    """The header survives JSON unchanged, tuples, enums and nested structs too."""
    header = handmade.header()
    text = msgspec.json.encode(header)
    assert msgspec.json.decode(text, type=type(header)) == header


def noisy_kernels(replays: int, passes: int) -> pl.DataFrame:
    """Replays of 80 kernels a pass, with the jitter of a real GPU."""
    draw = np.random.default_rng(0)
    per_pass, shape = 80, (replays, passes, 80)
    typical_ns = draw.integers(1_200, 9_000, per_pass)
    duration_ns = (typical_ns * draw.normal(1, 0.02, shape)).astype(np.int64)
    gap_ns = (700 * draw.normal(1, 0.05, shape)).astype(np.int64)
    end_ns = (gap_ns + duration_ns).cumsum(axis=2)
    period_ns = end_ns[:, :, -1:]
    pass_start_ns = np.broadcast_to(period_ns.cumsum(axis=1) - period_ns, shape)
    index = np.indices(shape)
    node = index[1] * per_pass + index[2]
    names = [f"void gemm_{i % 23}<bfloat16, sm90>(Params)" for i in range(per_pass)]
    columns = {
        "replay": index[0].ravel(),
        "round": index[0].ravel(),
        "pass_index": index[1].ravel(),
        "node": node.ravel(),
        "pass_start_ns": pass_start_ns.ravel(),
        "start_ns": (end_ns - duration_ns).ravel(),
        "duration_ns": duration_ns.ravel(),
        "name": names * (replays * passes),
        "grid_x": np.tile(typical_ns // 16, replays * passes),
    }
    text = {"arm": "reference", "experiment": "captured", "kind": "kernel"}
    rest: dict[str, object] = {
        name: text.get(name, 0) for name in KERNELS if name not in columns
    }
    rest |= {"region": "moe", "role": None}
    return pl.DataFrame(columns).with_columns(
        pl.lit(value).alias(name) for name, value in rest.items()
    )


def test_a_recorded_run_is_small(tmp_path: Path) -> None:
    """170,000 kernels with realistic jitter take less than a megabyte on disk."""
    kernels = noisy_kernels(replays=89, passes=24)
    assert kernels.height == 170_880
    writer = RunWriter(tmp_path, handmade.header())
    writer.add_kernels(kernels)
    writer.checkpoint()
    assert (tmp_path / KERNELS_FILE).stat().st_size < 1_000_000


def test_stamps_that_were_taken_out_again_are_gone_from_disk(tmp_path: Path) -> None:
    """The file that was written before holds none."""
    stamps = pl.DataFrame(
        [("fused (stamps)", 0, "qkv", 0, 0, 10, 20, 30)], schema=STAMPS, orient="row"
    )
    writer = RunWriter(tmp_path, handmade.header())
    writer.set_stamps(stamps)
    writer.checkpoint()
    writer.forget(["fused (stamps)"])
    writer.checkpoint()
    assert_frame_equal(load(tmp_path).stamps, empty(STAMPS))
