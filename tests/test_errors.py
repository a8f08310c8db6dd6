"""Our table of errors says of each code what every other implementation says."""

from __future__ import annotations

import pickle

import kafka.errors
import pytest
from confluent_kafka import KafkaError
from kio.schema.errors import ErrorCode

from headrace.errors import Error, HeadraceError, ProtocolError, Refused


def test_codes_and_names_are_those_of_kio() -> None:
    assert {error.value: error.name for error in Error} == {code.value: code.name.upper() for code in ErrorCode}


def test_what_is_retriable_is_what_kio_says() -> None:
    assert {error.name for error in Error if error.retriable} == {
        code.name.upper() for code in ErrorCode if code.retriable
    }


def test_codes_are_known_to_kafka_python_and_as_retriable_there() -> None:
    theirs = {code: error for code, error in kafka.errors.kafka_errors.items() if code is not None}
    assert theirs.keys() <= {error.value for error in Error}
    # A corrupt batch was most likely damaged on its way: Kafka's own client sends it again, kafka-python does not.
    differ = {code for code, error in theirs.items() if error.retriable != Error(code).retriable}
    assert differ == {Error.CORRUPT_MESSAGE}


def test_codes_have_the_names_that_librdkafka_gives_them() -> None:
    theirs = {
        name: code
        for name in dir(KafkaError)
        if name.isupper() and not name.startswith("_") and isinstance(code := getattr(KafkaError, name), int)
    }
    same = {name for name, code in theirs.items() if name in Error.__members__ and Error[name] == code}
    wrong = {name for name, code in theirs.items() if name in Error.__members__ and Error[name] != code}
    assert not wrong
    assert len(same) > 100


def test_codes_are_dense_so_none_is_forgotten() -> None:
    assert sorted(Error) == list(range(-1, 134))


@pytest.mark.parametrize("error", Error)
def test_every_text_is_one_sentence_of_its_own(error: Error) -> None:
    assert error.text.endswith(".")
    assert ". " not in error.text
    assert [other for other in Error if other.text == error.text] == [error]


def test_a_code_of_a_newer_peer_is_an_unknown_server_error() -> None:
    assert Error.of(3) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert Error.of(9999) is Error.UNKNOWN_SERVER_ERROR


def test_a_refusal_carries_its_code_and_its_sentence() -> None:
    plain = Refused(Error.UNKNOWN_TOPIC_OR_PARTITION)
    assert (plain.error, plain.text, str(plain)) == (
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        plain.error.text,
        plain.error.text,
    )
    own = Refused(Error.INVALID_CONFIG, "retention.ms must be a number.")
    assert (own.error, own.text, str(own)) == (Error.INVALID_CONFIG, "retention.ms must be a number.", own.text)
    again = pickle.loads(pickle.dumps(own))
    assert (again.error, again.text) == (own.error, own.text)


def test_every_exception_of_ours_is_a_headrace_error() -> None:
    assert issubclass(ProtocolError, HeadraceError)
    assert issubclass(Refused, HeadraceError)
