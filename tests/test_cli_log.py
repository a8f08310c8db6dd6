"""`headrace log`, as a person uses it, on the folders of a real Kafka."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import main
from headrace.cli.columns import PAGE_CHARACTERS, PAGE_ROWS, Column, Columns
from headrace.cli.quantities import plural, share_text, size_text, time_text, wrapped
from headrace.protocol.batch import scan
from headrace.protocol.batch_builder import build
from headrace.protocol.messages import OffsetCommitKey, OffsetCommitValue
from headrace.protocol.state import encode_key, encode_value
from tests.transcripts import PAGE, rendered

FOLDER = Path(__file__).parent / "fixtures" / "kafka"
FIRST = "00000000000000000000.log"
PLAIN = FOLDER / "plain-0" / FIRST
TRANSACTIONS = FOLDER / "transactions-0" / "00000000000000000018.log"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())["topics"]

Capture = pytest.CaptureFixture[str]


def run(capsys: Capture, *arguments: str | Path) -> tuple[int, str, str]:
    code = main(["log", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def rows(capsys: Capture, *arguments: str | Path) -> list[dict[str, Any]]:
    code, out, err = run(capsys, "dump", "--json", *arguments)
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A copy of Kafka's log directory that may be spoilt."""
    return Path(shutil.copytree(FOLDER, tmp_path / "data", ignore=shutil.ignore_patterns("expected.json")))


def write_log(folder: Path, *batches: bytes | bytearray) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / FIRST
    path.write_bytes(b"".join(batches))
    return path


# --- dump -------------------------------------------------------------------------------------------------------------


def test_the_page_about_the_tools_shows_what_they_print() -> None:
    assert rendered(PAGE.read_text()) == PAGE.read_text(), "output has changed: run python -m tests.transcripts"


@pytest.mark.parametrize("topic", EXPECTED)
def test_records_are_those_that_a_client_reads_from_kafka(capsys: Capture, topic: str) -> None:
    segments = sorted((FOLDER / f"{topic}-0").glob("*.log"))
    found = [row for row in rows(capsys, "--records", *segments) if row["type"] == "record"]
    assert [
        (row["offset"], row["timestamp"], row["key"], row["value"], [tuple(header) for header in row["headers"]])
        for row in found
    ] == [
        (row["offset"], row["timestamp"], row["key"], row["value"], [tuple(header) for header in row["headers"]])
        for row in EXPECTED[topic]["read_uncommitted"]
    ]


def test_batches_are_shown_by_their_headers(capsys: Capture) -> None:
    found = rows(capsys, FOLDER / "codecs-0" / FIRST)
    assert [row["compression"] for row in found] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert sum(row["size_bytes"] for row in found) == (FOLDER / "codecs-0" / FIRST).stat().st_size
    assert found[1]["position"] == found[0]["size_bytes"]
    lines = run(capsys, "dump", FOLDER / "append-time-0" / FIRST)[1].splitlines()
    assert lines[1].split()[:5] == ["0", "0", "1", "89", "none"]
    assert "append-time" in lines[1]


def test_it_begins_at_an_offset_and_ends_after_a_count(capsys: Capture) -> None:
    assert [row["base_offset"] for row in rows(capsys, PLAIN, "--offset", "40", "--count", "3")] == [40, 41, 42]
    found = rows(capsys, "-r", FOLDER / "codecs-0" / FIRST, "-o", "45", "-n", "2")
    assert [row.get("offset", row["type"]) for row in found] == ["batch", 45, 46]
    assert [row["offset"] for row in rows(capsys, PLAIN.with_suffix(".index"), "-o", "40", "-n", "2")] == [40, 41]
    assert rows(capsys, PLAIN, "--offset", "1000") == []


@pytest.mark.parametrize("index", [None, b"", b"\0\0\0\x01\0\0\0\x05", b"\0\0\0\x07\0\0\x7f\xff", b"odd"])
def test_it_begins_at_an_offset_whatever_the_index_says(capsys: Capture, data: Path, index: bytes | None) -> None:
    path = data / "plain-0" / "00000000000000000000.index"
    path.unlink() if index is None else path.write_bytes(index)
    assert [row["base_offset"] for row in rows(capsys, data / "plain-0" / FIRST, "-o", "44")] == [44]


def test_control_records_are_decoded(capsys: Capture) -> None:
    found = rows(capsys, "--records", TRANSACTIONS, "--offset", "23", "--count", "3")
    controls = [row for row in found if row["type"] == "control"]
    assert [(row["offset"], row["control"], row["value"]["fields"]) for row in controls] == [
        (23, "COMMIT", {"coordinator_epoch": 0}),
        (25, "ABORT", {"coordinator_epoch": 0}),
    ]
    out = run(capsys, "dump", "-r", FOLDER / "bootstrap.checkpoint")[1]
    assert "SNAPSHOT_HEADER  version=0, last_contained_log_timestamp=0" in out
    assert "FeatureLevelRecord(name='metadata.version', feature_level=30)" in out


def test_records_of_state_topics_are_decoded_by_their_folder_or_by_name(capsys: Capture, tmp_path: Path) -> None:
    key = encode_key(OffsetCommitKey(group="billing", topic="orders", partition=3))
    value = encode_value(OffsetCommitValue(offset=42, commit_timestamp=1), 3)
    records = [(key, value, (), 0), (key, None, (), 0), (b"\0\x63", b"", (), 0), (None, b"x", (), 0)]
    path = write_log(tmp_path / "__consumer_offsets-7", build(records))
    found = [row for row in rows(capsys, "-r", path) if row["type"] == "record"]
    assert found[0]["key"]["message"] == "OffsetCommitKey"
    assert found[0]["key"]["fields"] == {"group": "billing", "topic": "orders", "partition": 3}
    assert found[0]["value"]["fields"]["offset"] == 42
    assert found[1]["value"] is None
    assert "was it written by a newer version?" in found[2]["problem"]
    assert found[3]["problem"] == "it has no key"
    assert "OffsetCommitValue(offset=42, commit_timestamp=1" in run(capsys, "dump", "-r", path)[1]

    elsewhere = write_log(tmp_path / "copy", path.read_bytes())
    plain = [row for row in rows(capsys, "-r", elsewhere) if row["type"] == "record"]
    assert plain[0]["key"] == key.decode()
    assert rows(capsys, "-r", elsewhere, "--as", "consumer-offsets")[1]["key"]["fields"]["group"] == "billing"
    assert rows(capsys, "-r", path, "--as", "none")[1]["key"] == key.decode()
    assert run(capsys, "dump", "-r", path, "--as", "orders")[2].startswith(
        "headrace: records can't be read as orders: c"
    )


@pytest.mark.parametrize(
    ("value", "format", "text", "as_json"),
    [
        (b"one", "text", "'one'", "one"),
        (None, "text", "null", None),
        (b"null", "text", "'null'", "null"),
        (b"", "text", "''", ""),
        ("über\u2028".encode(), "text", "'über\\u2028'", "über\u2028"),
        (b"\x1b[31mred\n", "text", "'\\x1b[31mred\\n'", "\x1b[31mred\n"),
        (b"\xff\x00", "text", "0xff00", {"hex": "ff00"}),
        (b"one", "hex", "0x6f6e65", "6f6e65"),
        (b'{"a": [1, null]}', "json", '{"a":[1,null]}', {"a": [1, None]}),
        (b"not json", "json", "'not json'", {"text": "not json"}),
        (b"[" * 100_000, "json", repr("[" * 100_000), {"text": "[" * 100_000}),
        (b"\xff", "json", "0xff", {"hex": "ff"}),
    ],
)
def test_values_are_shown_as_wished(
    capsys: Capture, tmp_path: Path, value: bytes | None, format: str, text: str, as_json: object
) -> None:
    path = write_log(tmp_path / "t-0", build([(b"k", value, [("name", value)], 0)]))
    record = rows(capsys, "-r", "-f", format, path)[1]
    assert record["value"] == as_json
    assert record["headers"] == [["name", as_json]]
    line = run(capsys, "dump", "-r", "-f", format, path)[1].splitlines()[2]
    assert text in line
    assert f"name={text}" in line
    assert "\x1b" not in line


def test_a_terminal_gets_the_beginning_of_long_values(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = ("é" * 300).encode()
    path = write_log(tmp_path / "t-0", build([(b"\xff" * 300, long, (), 0)]))
    assert "é" * 300 in run(capsys, "dump", "-r", path)[1]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    out = run(capsys, "dump", "-r", path)[1]
    assert f"'{'é' * 128}'… (600 bytes)" in out
    assert f"0x{'ff' * 256}… (300 bytes)" in out


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "transactions-0/00000000000000000018.index",
            ["byte  offset  position in the log", "   0      19                   78"],
        ),
        (
            "plain-0/00000000000000000000.timeindex",
            ["byte  largest time (UTC)       up to offset", "   0  2023-11-14 22:13:20.001             1"],
        ),
        ("plain-0/leader-epoch-checkpoint", ["epoch  start offset", "    0             0", "    2            44"]),
        ("plain-0/partition.metadata", ["name      value"]),
        ("meta.properties", ["name          value", "cluster.id    r5_zfwrLRzCI6ogNZMTFdA", "node.id       1"]),
        ("cleaner-offset-checkpoint", ["topic      partition  offset", "compacted          0      32"]),
        ("log-start-offset-checkpoint", ["topic  partition  offset"]),
        (".kafka_cleanshutdown", ["name         value", "version      0", "brokerEpoch  54"]),
        ("__cluster_metadata-0/quorum-state", ["name           value"]),
        ("plain-0/00000000000000000044.snapshot", ["producer  last offsets  last sequences  open since"]),
        ("compacted-0/00000000000000000030.log.deleted", ["byte  offsets  records  bytes  codec"]),
    ],
)
def test_every_file_of_a_log_is_a_table(capsys: Capture, name: str, lines: list[str]) -> None:
    code, out, _ = run(capsys, "dump", FOLDER / name)
    assert code == 0
    for line, expected in zip(out.splitlines(), lines, strict=False):
        assert line.startswith(expected)
    assert len(out.splitlines()) >= len(lines)


def test_every_file_in_the_fixtures_can_be_dumped(capsys: Capture) -> None:
    files = [path for path in sorted(FOLDER.rglob("*")) if path.is_file() and path.name != "expected.json"]
    for arguments in ((), ("--records",), ("--json", "--records")):
        code, out, err = run(capsys, "dump", *arguments, *files)
        assert (code, err) == (0, "")
        assert len(out.splitlines()) > 500


def test_an_index_of_an_active_segment_has_zeros_behind_it(capsys: Capture, data: Path) -> None:
    path = data / "plain-0" / "00000000000000000000.index"
    entries = len(path.read_bytes()) // 8
    path.write_bytes(path.read_bytes() + bytes(800_000))
    found = rows(capsys, path)
    assert len(found) == entries + 1
    assert found[-1]["text"] == "bytes 344 to 800344 are zeros, reserved for entries to come"
    path.write_bytes(path.read_bytes()[:346])
    path.with_suffix(".index").write_bytes(b"\1" * 13)
    assert rows(capsys, path)[-1]["text"] == "bytes 8 to 13 are no whole entry"
    renamed = path.rename(path.with_name("mine.index"))
    assert "relative" in rows(capsys, renamed)[0]["text"]


def test_a_file_with_a_name_of_its_own_is_read_by_its_batches(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "incident.log"
    shutil.copy(TRANSACTIONS, path)
    assert [row["base_offset"] for row in rows(capsys, path, "-n", "2")] == [18, 19]


def test_it_ends_at_a_torn_tail_and_says_where(capsys: Capture, data: Path) -> None:
    path = data / "plain-0" / FIRST
    path.write_bytes(path.read_bytes()[:-10])
    code, out, err = run(capsys, "dump", path)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == (
        "bytes 4204 to 4279 are no sound batch: a record batch needs 85 bytes, and the file ends before; an unclean "
        "stop leaves such a tail, or a node is writing there"
    )
    assert rows(capsys, path)[-1]["type"] == "damage"
    path.write_bytes(path.read_bytes()[:4204] + bytes(100))
    assert run(capsys, "dump", path)[1].splitlines()[-1] == "bytes 4204 to 4304 are zeros, reserved for what comes"


def test_it_ends_at_damage_unless_told_to_go_past_it(capsys: Capture, data: Path) -> None:
    path = data / "plain-0" / FIRST
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    code, out, err = run(capsys, "dump", path)
    assert code == 1
    assert "bytes 163 to 243 are no sound batch" in out.splitlines()[-1]
    assert err == f"headrace: {path} is damaged; what to do about it: headrace log verify {path.parent}\n"
    code, out, _ = run(capsys, "dump", "--past-damage", "--json", path)
    assert code == 1
    assert len(out.splitlines()) == 45


def test_records_that_can_not_be_read_are_told_in_their_place(capsys: Capture, data: Path) -> None:
    path = data / "codecs-0" / FIRST
    content = bytearray(path.read_bytes())
    batch = list(scan(memoryview(content)))[1]
    batch.buffer[batch.end - 20] ^= 0xFF
    batch._set_attributes(batch.attributes)  # the checksum is right again
    path.write_bytes(content)
    found = rows(capsys, "-r", path)
    unreadable = [row for row in found if row["type"] == "unreadable"]
    assert [row["base_offset"] for row in unreadable] == [20]
    assert [row["offset"] for row in found if row["type"] == "record"] == [*range(20), *range(40, 100)]
    assert "the records of the batch at byte" in run(capsys, "dump", "-r", path)[1]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("no/such.log", "no/such.log does not exist."),
        ("plain-0", "plain-0 is a folder: name files in it, or sum it up with headrace log stat"),
        ("notes.txt", "notes.txt is no file of a log by its name: they end in .log, .index,"),
        ("bad.snapshot", "bad.snapshot is damaged: its version is 25714, and only 1 is known"),
        ("quorum-state", "quorum-state is damaged: it is no JSON object."),
        ("meta.properties", "meta.properties has no cluster.id; restore it, or choose"),
    ],
)
def test_what_can_not_be_dumped_is_told_in_a_sentence(capsys: Capture, tmp_path: Path, name: str, error: str) -> None:
    (tmp_path / "plain-0").mkdir()
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "bad.snapshot").write_text("dreadful bytes")
    (tmp_path / "quorum-state").write_text("[1]")
    (tmp_path / "meta.properties").write_text("version=1")
    code, out, err = run(capsys, "dump", tmp_path / name)
    assert (code, out) == (1, "")
    assert err.startswith(f"headrace: {tmp_path}/{error}")
    assert err.count("\n") == 1


def test_the_other_files_are_dumped_all_the_same(capsys: Capture, tmp_path: Path) -> None:
    code, out, err = run(capsys, "dump", tmp_path / "missing.log", PLAIN)
    assert code == 1
    assert len(out.splitlines()) == 49
    assert err == f"headrace: {tmp_path}/missing.log does not exist.\n"


# --- verify -----------------------------------------------------------------------------------------------------------


def test_verify_of_a_sound_folder_says_ok_and_nothing_is_changed(capsys: Capture, data: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in data.rglob("*")}
    code, out, err = run(capsys, "verify", data, "--deep")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "10 partitions, 26 segments, 25.6 KiB, 223 batches: no damage."
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in data.rglob("*")} == before


def test_verify_of_damage_says_where_and_what_to_do(capsys: Capture, data: Path) -> None:
    path = data / "plain-0" / FIRST
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    code, out, _ = run(capsys, "verify", data)
    assert code == 1
    assert "plain-0                       1  4.2 KiB       44       44      0   45  1 damaged" in out
    assert "damage      plain-0/00000000000000000000.log, byte 163" in out
    assert f"`truncate -s 163 {path}`" in out
    code, out, _ = run(capsys, "verify", data / "plain-0", "--json")
    found = json.loads(out)
    assert (code, found["is_sound"], found["is_clean_stop"]) == (1, False, True)
    (partition,) = found["partitions"]
    assert partition["counts"] == {"damage": 1, "repairable": 0, "note": 0}
    assert partition["problems"][0] | {"advice": ""} == {
        "severity": "damage",
        "path": "plain-0/00000000000000000000.log",
        "position": 163,
        "what": "bytes 163 to 243: the record batch with base offset 2 fails its CRC32C",
        "advice": "",
    }


def test_verify_from_within_the_folder(capsys: Capture, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data / "segments-0")
    code, out, _ = run(capsys, "verify", ".")
    assert code == 0
    assert out.splitlines()[1].split() == ["segments-0", "10", "3.7", "KiB", "52", "52", "0", "52", "OK"]


@pytest.mark.parametrize("command", ["verify", "stat"])
def test_what_is_no_log_directory_is_told_and_not_made(capsys: Capture, tmp_path: Path, command: str) -> None:
    code, _, err = run(capsys, command, tmp_path / "missing")
    assert (code, err) == (1, f"headrace: {tmp_path}/missing does not exist.\n")
    assert not (tmp_path / "missing").exists()
    for name in ("photos", "dbus-1", "gtk-2.0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "settings").write_text("")
    code, out, err = run(capsys, command, tmp_path)
    assert (code, out) == (1, "")
    assert f"{tmp_path} is neither a log directory nor a partition's folder" in err
    assert err.count("\n") == 1
    (tmp_path / "file").write_text("")
    assert "is a file: see what is in it with headrace log dump" in run(capsys, command, tmp_path / "file")[2]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_permission_is_told_in_a_sentence(capsys: Capture, data: Path) -> None:
    (data / "plain-0").chmod(0)
    try:
        code, _, err = run(capsys, "verify", data)
    finally:
        (data / "plain-0").chmod(0o755)
    assert code == 1
    assert "may not be used by this user" in err


# --- stat -------------------------------------------------------------------------------------------------------------


def test_stat_sums_up_partitions(capsys: Capture) -> None:
    code, out, _ = run(capsys, "stat", FOLDER, "--json", "--deep")
    assert code == 0
    found = json.loads(out)
    by_name = {one["name"]: one for one in found["partitions"]}
    codecs = by_name["codecs-0"]
    assert {name: use["records"] for name, use in codecs["codecs"].items()} == dict.fromkeys(
        ("none", "gzip", "snappy", "lz4", "zstd"), 20
    )
    sizes = [use["decompressed_bytes"] for use in codecs["codecs"].values()]
    assert max(sizes) - min(sizes) < 150, "nearly the same records in all codecs"
    assert codecs["codecs"]["none"]["ratio"] == 1
    assert 8 < codecs["ratio"] < 10
    transactions = by_name["transactions-0"]
    assert (transactions["segments"], transactions["end_offset"], transactions["producers"]) == (4, 28, 3)
    assert (transactions["transactional_records"], transactions["control_batches"]) == (22, 5)
    assert by_name["plain-0"]["first_timestamp"] == EXPECTED["plain"]["read_uncommitted"][0]["timestamp"]
    for name in ("size_bytes", "batches", "records", "segments"):
        assert found["total"][name] == sum(one[name] for one in by_name.values())
    assert found["total"]["unreadable_bytes"] == 0


def test_stat_sorts_and_limits_and_totals_are_of_all(capsys: Capture) -> None:
    out = run(capsys, "stat", FOLDER, "--sort", "size", "--top", "2")[1].splitlines()
    assert [line.split()[0] for line in out] == ["partition", "__cluster_metadata-0", "plain-0", "total"]
    assert out[-1].split()[:4] == ["total", "of", "10", "partitions"]
    names = [line.split()[0] for line in run(capsys, "stat", FOLDER, "-s", "segments")[1].splitlines()]
    assert names[1:4] == ["segments-0", "idempotent-0", "transactions-0"]


def test_stat_says_that_something_is_damaged(capsys: Capture, data: Path) -> None:
    path = data / "plain-0" / FIRST
    content = bytearray(path.read_bytes())
    content[200] ^= 1
    path.write_bytes(content)
    code, out, _ = run(capsys, "stat", path.parent)
    assert code == 0
    assert out.splitlines()[-1] == f"80 bytes of no sound batch are left out; see headrace log verify {path.parent}"


# --- terminals, pipes, and how numbers look ---------------------------------------------------------------------------

COMMANDS = [
    ("dump", TRANSACTIONS),
    ("dump", "--records", "--count", "5", PLAIN),
    ("dump", FOLDER / "transactions-0" / "00000000000000000028.snapshot"),
    ("verify", FOLDER),
    ("stat", FOLDER, "--deep"),
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_table_fits_the_terminal_and_says_what_it_left_off(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, command: tuple[str | Path, ...], width: int
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(width))
    code, out, _ = run(capsys, *command)
    assert code == 0
    assert "\x1b[" in out
    lines = re.sub(r"\x1b\[[\d;]*m", "", out).splitlines()
    assert max(map(len, lines)) <= max(width, 72)
    wide = run_in_pipe(capsys, monkeypatch, *command)[0].split()
    for word in wide:
        assert word in " ".join(lines), "a column is shown or named"


def run_in_pipe(capsys: Capture, monkeypatch: pytest.MonkeyPatch, *command: str | Path) -> list[str]:
    monkeypatch.delenv("FORCE_COLOR")
    return run(capsys, *command)[1].splitlines()


def test_columns_stream_page_by_page(capsys: Capture) -> None:
    with Columns([Column("name"), Column(">number")]) as columns:
        for number in range(PAGE_ROWS - 1):
            columns.row(["a", str(number)])
        assert capsys.readouterr().out == ""
        columns.line("between")
        assert len(capsys.readouterr().out.splitlines()) == PAGE_ROWS + 1
        columns.row(["a" * 30, "1"])
        columns.row(["x" * PAGE_CHARACTERS, "2"])
        assert "a" * 30 in capsys.readouterr().out
        columns.row(["日本", "3"])
    assert capsys.readouterr().out == "日本" + " " * (30 - 4 + 2) + "     3\n"


def test_columns_show_what_came_before_an_error(capsys: Capture) -> None:
    def fail() -> None:
        with Columns([Column("name")]) as columns:
            columns.row(["first"])
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert capsys.readouterr().out == "name\nfirst\n"


def test_numbers_are_shown_as_people_read_them() -> None:
    assert [size_text(size) for size in (0, 999, 1000, 1024**2, 5 * 1024**4)] == [
        "0 B",
        "999 B",
        "1.0 KiB",
        "1.0 MiB",
        "5.0 TiB",
    ]
    assert [time_text(ms) for ms in (-1, -5, 0, 1_700_000_000_123, 2**62)] == [
        "-",
        "-5 ms",
        "1970-01-01 00:00:00.000",
        "2023-11-14 22:13:20.123",
        f"{2**62} ms",
    ]
    assert [share_text(part, 1000) for part in (0, 1, 10, 999, 1000)] == ["-", "<1%", "1%", "99%", "100%"]
    assert [plural(1, "batch"), plural(2, "batch"), plural(1200, "byte")] == ["1 batch", "2 batches", "1,200 bytes"]
    assert wrapped("do `this and that`, then go", 16, "  ") == "  do\n  `this and that`,\n  then go"
