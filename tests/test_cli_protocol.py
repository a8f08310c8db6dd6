"""`headrace protocol`, as a person uses it."""

import json
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.protocol.batch_builder import build
from headrace.protocol.frame import write_request, write_response
from headrace.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, ProduceRequest


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["protocol", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def produce_frame(records: bytes | bytearray) -> bytes:
    partition = ProduceRequest.PartitionProduceData(index=3, records=records)
    topic = ProduceRequest.TopicProduceData(name="orders", partition_data=[partition])
    return b"".join(write_request(ProduceRequest(acks=-1, topic_data=[topic]), 9, 7, "tour"))


def test_show_prints_the_shape_of_an_api(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", "heartbeat")
    assert code == 0
    assert out.splitlines() == [
        "HeartbeatRequest  API key 12, versions 0-4, flexible 4+  # a member says that it is alive",
        "  group_id           string",
        "  generation_id      int32",
        "  member_id          string",
        "  group_instance_id  string?  3+  = null",
        "",
        "HeartbeatResponse  API key 12, versions 0-4, flexible 4+  # a member says that it is alive",
        "  throttle_time_ms  int32  1+  ignorable",
        "  error_code        error",
    ]


def test_show_prints_only_what_a_version_has(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "show", "HeartbeatRequest", "--version", "2")
    assert "group_instance_id" not in out
    assert run(capsys, "show", "12", "--version", "9")[2] == "headrace: HeartbeatRequest has versions 0-4, not 9.\n"


def test_show_knows_records_and_offers_the_nearest_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert "ConsumerGroupMetadataValue" in run(capsys, "show", "ConsumerGroupMetadata")[1]
    assert run(capsys, "show", "NoOp")[1].splitlines()[1] == "  (no fields)"
    code, _, error = run(capsys, "show", "Feetch")
    assert (code, error) == (1, "headrace: there is no message Feetch. Did you mean Fetch?\n")
    assert "there is no API with key 4711" in run(capsys, "show", "4711")[2]


def test_show_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    request, response = json.loads(run(capsys, "show", "Heartbeat", "--json")[1])
    assert request["fields"][3] == {
        "name": "group_instance_id",
        "type": "string?",
        "versions": "3+",
        "tag": None,
        "default": None,
        "ignorable": False,
        "key": False,
    }
    assert response["key"] == 12


def test_list_has_every_api_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(capsys, "list")[1].splitlines()
    assert len([line for line in lines if line.startswith("api ")]) == 89
    assert any(line.split()[:3] == ["group", "1", "OffsetCommit"] for line in lines)


def test_decode_explains_a_request_with_its_batches(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    batch = build([(b"k", b"hello", [("h", b"v")], 1000), (None, b"\xff" * 100, [], 1001)])
    capture = tmp_path / "capture.bin"
    capture.write_bytes(produce_frame(batch) + produce_frame(batch))
    code, out, _ = run(capsys, "decode", str(capture))
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert ["8", "client_id", "'tour'", "string", "00", "04", "74", "6f", "75", "72"] in rows
    assert ["31", "index", "3", "int32", "00", "00", "00", "03"] in rows
    assert "2 records, checksum right" in out
    assert "offset 0" in out
    assert "'k' → 'hello', h='v'" in out
    assert out.count("ProduceRequest") == 2


def test_decode_takes_hex_with_spaces_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    frame = b"".join(write_request(ApiVersionsRequest(client_software_name="c"), 3, 1, None))
    assert "client_software_name" in run(capsys, "decode", frame.hex(":"))[1]
    assert "client_software_name" in run(capsys, "decode", frame[4:].hex(" "))[1]


def test_decode_of_a_capture_that_was_cut_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    frame = b"".join(write_request(ApiVersionsRequest(client_software_name="c"), 3, 1, None))
    code, out, error = run(capsys, "decode", (frame + frame[:-1]).hex())
    assert code == 1
    assert out.count("client_software_name") == 2
    assert f"frame 1, at byte {len(frame) + 4} of the input:" in out
    size = len(frame) - 4
    assert error.startswith(f"headrace: the frame says that it is {size} bytes long, and {size - 1} are there; ")
    assert f"tags at byte {size - 1}: " in error
    assert f"says that it is {size} bytes long" in run(capsys, "decode", frame[:-3].hex())[2]


def test_decode_of_a_response_needs_its_api_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    keys = [ApiVersionsResponse.ApiVersion(api_key=3, max_version=13)]
    frame = b"".join(write_response(ApiVersionsResponse(error_code=35, api_keys=keys), 3, 1)).hex()
    out = run(capsys, "decode", frame, "--response", "ApiVersions", "--version", "3")[1]
    assert "UNSUPPORTED_VERSION" in out
    assert "say which version it is" in run(capsys, "decode", frame, "--response", "ApiVersions")[2]
    rows = json.loads(run(capsys, "decode", frame, "-r", "18", "-v", "3", "--json")[1])
    assert rows[1] == {
        "frame": 0,
        "byte": 0,
        "size": 4,
        "depth": 1,
        "field": "correlation_id",
        "type": "int32",
        "value": "1",
    }


def test_decode_of_a_bare_message(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "decode", "0000000700", "--message", "FenceBroker", "--version", "0")
    assert out[0] == 1
    assert "FenceBrokerRecord v0: epoch at byte 4: 8 bytes are needed, and 1 are left." in out[2]
    assert "id  " in out[1]
    assert "Fetch is more than one message" in run(capsys, "decode", "00", "-m", "Fetch", "-v", "4")[2]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["decode", ""], "there is nothing to decode: give hex digits, a file, or - for the standard input."),
        (["decode", "abc"], "3 hex digits are not whole bytes: one is missing, or one too many."),
        (["decode", "/no/such/file"], "/no/such/file is neither hex digits nor a file."),
        (["decode", "00"], "a request has a header of at least 8 bytes, and these are 1."),
        (["decode", "1267000000000000"], "it starts with API key 4711, which is not known: for a response"),
        (["decode", "0001006300000000"], "Fetch has versions 4-18, not 99: is this a response?\n"),
        (["decode", "00", "-r", "Fetsch", "-v", "4"], "there is no API Fetsch. Did you mean Fetch?"),
    ],
)
def test_what_cannot_be_decoded_is_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], error: str
) -> None:
    code, _, said = run(capsys, *arguments)
    assert code == 1
    assert said.startswith(f"headrace: {error}")
    assert said.count("\n") == 1


def test_a_damaged_batch_is_shown_as_far_as_it_goes(capsys: pytest.CaptureFixture[str]) -> None:
    batch = build([(b"k", b"hello", [], 1000)])
    batch[-1] ^= 1
    assert "damaged: " in run(capsys, "decode", produce_frame(batch).hex())[1]
    assert "can't be read" in run(capsys, "decode", produce_frame(batch[:30]).hex())[1]
