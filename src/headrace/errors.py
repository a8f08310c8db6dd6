"""Every error once: Kafka's codes as they stand on the wire, and what this package raises.

`Error` is a value that travels in a response. The exceptions are for this process: each carries one sentence for a
person, which says what is wrong and what to do next.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

FINAL, RETRY = False, True


class Error(IntEnum):
    """Kafka's error codes, up to Kafka 4.2: the code, whether asking again can help, and what it means."""

    _value_: int
    retriable: bool
    text: str

    UNKNOWN_SERVER_ERROR = -1, FINAL, "The server failed in a way that it has no code for; its log says more."
    NONE = 0, FINAL, "No error."
    OFFSET_OUT_OF_RANGE = 1, FINAL, "The offset lies before the start or after the end of the partition's log."
    CORRUPT_MESSAGE = 2, RETRY, "The record batch fails its checksum or its rules."
    UNKNOWN_TOPIC_OR_PARTITION = 3, RETRY, "This broker has no such topic or partition."
    INVALID_FETCH_SIZE = 4, FINAL, "The size asked for in the fetch is not valid."
    LEADER_NOT_AVAILABLE = 5, RETRY, "The partition has no leader at the moment; an election is under way."
    NOT_LEADER_OR_FOLLOWER = 6, RETRY, "This broker does not lead the partition, or has no replica; refresh metadata."
    REQUEST_TIMED_OUT = 7, RETRY, "The request did not finish within its time-out."
    BROKER_NOT_AVAILABLE = 8, FINAL, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, RETRY, "The replica is not available for this partition."
    MESSAGE_TOO_LARGE = 10, FINAL, "The record batch is larger than the topic's max.message.bytes."
    STALE_CONTROLLER_EPOCH = 11, FINAL, "The request comes from a controller that has been replaced."
    OFFSET_METADATA_TOO_LARGE = 12, FINAL, "The metadata text of the committed offset is too long."
    NETWORK_EXCEPTION = 13, RETRY, "The connection broke before the response came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, RETRY, "The coordinator is still loading its state."
    COORDINATOR_NOT_AVAILABLE = 15, RETRY, "There is no coordinator at the moment."
    NOT_COORDINATOR = 16, RETRY, "This broker is not the coordinator; find it again."
    INVALID_TOPIC_EXCEPTION = 17, FINAL, "The topic name is not valid, or the topic does not allow this."
    RECORD_LIST_TOO_LARGE = 18, FINAL, "The batches together are larger than a segment of the log may be."
    NOT_ENOUGH_REPLICAS = 19, RETRY, "Nothing was written: fewer replicas are in sync than min.insync.replicas."
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, RETRY, "It was written, but fewer replicas than min.insync.replicas have it."
    INVALID_REQUIRED_ACKS = 21, FINAL, "acks must be 0, 1 or -1 (all)."
    ILLEGAL_GENERATION = 22, FINAL, "The generation is not the group's current one."
    INCONSISTENT_GROUP_PROTOCOL = 23, FINAL, "The member has no protocol in common with the rest of the group."
    INVALID_GROUP_ID = 24, FINAL, "The group id is not valid."
    UNKNOWN_MEMBER_ID = 25, FINAL, "The group has no such member."
    INVALID_SESSION_TIMEOUT = 26, FINAL, "The session time-out is outside the bounds that the broker sets."
    REBALANCE_IN_PROGRESS = 27, FINAL, "The group is rebalancing; join it again."
    INVALID_COMMIT_OFFSET_SIZE = 28, FINAL, "The offset commit is too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, FINAL, "The principal may not do this to the topic."
    GROUP_AUTHORIZATION_FAILED = 30, FINAL, "The principal may not do this to the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, FINAL, "The principal may not do this to the cluster."
    INVALID_TIMESTAMP = 32, FINAL, "The record's timestamp is further from the broker's clock than the topic allows."
    UNSUPPORTED_SASL_MECHANISM = 33, FINAL, "The listener does not offer this SASL mechanism."
    ILLEGAL_SASL_STATE = 34, FINAL, "This request does not fit the state of the authentication."
    UNSUPPORTED_VERSION = 35, FINAL, "This version of the API is not served."
    TOPIC_ALREADY_EXISTS = 36, FINAL, "A topic of this name exists."
    INVALID_PARTITIONS = 37, FINAL, "The number of partitions is not valid."
    INVALID_REPLICATION_FACTOR = 38, FINAL, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, FINAL, "The assignment of replicas to brokers is not valid."
    INVALID_CONFIG = 40, FINAL, "A setting or its value is not valid."
    NOT_CONTROLLER = 41, RETRY, "This node is not the active controller."
    INVALID_REQUEST = 42, FINAL, "The request contradicts itself or breaks a rule of its API."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, FINAL, "The format of the stored records does not allow this."
    POLICY_VIOLATION = 44, FINAL, "The request breaks a policy of this cluster."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, FINAL, "The producer's sequence number does not follow the last one."
    DUPLICATE_SEQUENCE_NUMBER = 46, FINAL, "The producer's sequence number was used before."
    INVALID_PRODUCER_EPOCH = 47, FINAL, "The producer's epoch is older than the current one."
    INVALID_TXN_STATE = 48, FINAL, "The transaction is not in a state that allows this."
    INVALID_PRODUCER_ID_MAPPING = 49, FINAL, "The producer id does not belong to this transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, FINAL, "The transaction time-out is above transaction.max.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, RETRY, "Another operation on this transaction is still under way."
    TRANSACTION_COORDINATOR_FENCED = 52, FINAL, "The transaction marker comes from a coordinator that was replaced."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, FINAL, "The principal may not use this transactional id."
    SECURITY_DISABLED = 54, FINAL, "Security is not enabled on this cluster."
    OPERATION_NOT_ATTEMPTED = 55, FINAL, "Not attempted, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, RETRY, "The log directory that holds the partition has failed or is full."
    LOG_DIR_NOT_FOUND = 57, FINAL, "The broker has no such log directory."
    SASL_AUTHENTICATION_FAILED = 58, FINAL, "Authentication failed."
    UNKNOWN_PRODUCER_ID = 59, FINAL, "The broker has no state of this producer id; its records may have expired."
    REASSIGNMENT_IN_PROGRESS = 60, FINAL, "The partition is being reassigned."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, FINAL, "Delegation tokens are not enabled."
    DELEGATION_TOKEN_NOT_FOUND = 62, FINAL, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, FINAL, "The principal is neither owner nor renewer of the delegation token."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, FINAL, "Delegation tokens can't be managed over this kind of connection."
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, FINAL, "The principal may not do this to the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, FINAL, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, FINAL, "This type of principal is not supported."
    NON_EMPTY_GROUP = 68, FINAL, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, FINAL, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, RETRY, "The broker has no such fetch session; start a new one."
    INVALID_FETCH_SESSION_EPOCH = 71, RETRY, "The epoch does not follow the fetch session's last one."
    LISTENER_NOT_FOUND = 72, RETRY, "The leader has no listener of the name on which this request came."
    TOPIC_DELETION_DISABLED = 73, FINAL, "The cluster does not allow topics to be deleted."
    FENCED_LEADER_EPOCH = 74, RETRY, "The leader epoch in the request is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, RETRY, "The leader epoch in the request is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, FINAL, "This version of the API can't carry the batch's compression type."
    STALE_BROKER_EPOCH = 77, FINAL, "The broker has registered again since."
    OFFSET_NOT_AVAILABLE = 78, RETRY, "The new leader's high watermark has not caught up yet."
    MEMBER_ID_REQUIRED = 79, FINAL, "Join again with the member id in this response."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, RETRY, "The preferred leader can't lead at the moment."
    GROUP_MAX_SIZE_REACHED = 81, FINAL, "The group has as many members as group.max.size allows."
    FENCED_INSTANCE_ID = 82, FINAL, "Another member has taken over this group.instance.id."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, RETRY, "No replica that may lead the partition is available."
    ELECTION_NOT_NEEDED = 84, RETRY, "The partition has the leader that the election would choose."
    NO_REASSIGNMENT_IN_PROGRESS = 85, FINAL, "The partition is not being reassigned."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, FINAL, "The group is subscribed to the topic, so its offsets can't be deleted."
    INVALID_RECORD = 87, FINAL, "A record breaks the rules of the topic."
    UNSTABLE_OFFSET_COMMIT = 88, RETRY, "An open transaction has offsets for this partition; they are not decided yet."
    THROTTLING_QUOTA_EXCEEDED = 89, RETRY, "A quota is used up; wait for the throttle time."
    PRODUCER_FENCED = 90, FINAL, "A newer producer with the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, FINAL, "The request refers to something that does not exist."
    DUPLICATE_RESOURCE = 92, FINAL, "The request refers to the same thing twice."
    UNACCEPTABLE_CREDENTIAL = 93, FINAL, "The credential does not meet the rules for credentials."
    INCONSISTENT_VOTER_SET = 94, FINAL, "Sender or receiver is not one of the voters that the other one expects."
    INVALID_UPDATE_VERSION = 95, FINAL, "The update starts from a version that is not the current one."
    FEATURE_UPDATE_FAILED = 96, FINAL, "The features could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, FINAL, "The controller could not read the principal of a forwarded request."
    SNAPSHOT_NOT_FOUND = 98, FINAL, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, FINAL, "The position lies outside the snapshot."
    UNKNOWN_TOPIC_ID = 100, RETRY, "This broker has no topic of this id."
    DUPLICATE_BROKER_REGISTRATION = 101, FINAL, "A live broker is registered with this node id."
    BROKER_ID_NOT_REGISTERED = 102, FINAL, "No broker is registered with this node id."
    INCONSISTENT_TOPIC_ID = 103, RETRY, "The topic's log has another topic id than the request."
    INCONSISTENT_CLUSTER_ID = 104, FINAL, "The request is for a cluster with another id."
    TRANSACTIONAL_ID_NOT_FOUND = 105, FINAL, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, RETRY, "The fetch session mixes topic names and topic ids."
    INELIGIBLE_REPLICA = 107, FINAL, "A replica of the new in-sync set may not be in it."
    NEW_LEADER_ELECTED = 108, FINAL, "The change was made, and the partition has another leader now."
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, FINAL, "The offset has left this broker's disk for tiered storage."
    FENCED_MEMBER_EPOCH = 110, FINAL, "The member was fenced; give up all partitions and join again."
    UNRELEASED_INSTANCE_ID = 111, FINAL, "Another member still has this group.instance.id; it must leave first."
    UNSUPPORTED_ASSIGNOR = 112, FINAL, "The group does not have this assignor."
    STALE_MEMBER_EPOCH = 113, FINAL, "The member epoch is old; wait for the new one in the next heartbeat."
    MISMATCHED_ENDPOINT_TYPE = 114, FINAL, "The request is for another kind of endpoint (broker or controller)."
    UNSUPPORTED_ENDPOINT_TYPE = 115, FINAL, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, FINAL, "There is no controller of this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, FINAL, "The telemetry subscription is unknown or has been replaced."
    TELEMETRY_TOO_LARGE = 118, FINAL, "The telemetry is larger than the broker takes."
    INVALID_REGISTRATION = 119, FINAL, "The controller refuses the registration."
    TRANSACTION_ABORTABLE = 120, FINAL, "The transaction can't go on; abort it and begin another one."
    INVALID_RECORD_STATE = 121, FINAL, "The record is not in a state in which it can be acknowledged."
    SHARE_SESSION_NOT_FOUND = 122, RETRY, "The broker has no such share session; start a new one."
    INVALID_SHARE_SESSION_EPOCH = 123, RETRY, "The epoch does not follow the share session's last one."
    FENCED_STATE_EPOCH = 124, FINAL, "The state epoch of the share group's partition is not the current one."
    INVALID_VOTER_KEY = 125, FINAL, "The request is for a voter with another id or directory id."
    DUPLICATE_VOTER = 126, FINAL, "This node is a voter already."
    VOTER_NOT_FOUND = 127, FINAL, "This node is not a voter."
    INVALID_REGULAR_EXPRESSION = 128, FINAL, "The regular expression is not valid."
    REBOOTSTRAP_REQUIRED = 129, FINAL, "The client's view of the cluster is too old; bootstrap again."
    STREAMS_INVALID_TOPOLOGY = 130, FINAL, "The topology is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, FINAL, "The topology epoch is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, FINAL, "The topology epoch is older than the group's."
    SHARE_SESSION_LIMIT_REACHED = 133, RETRY, "The broker has as many share sessions as it allows."

    def __new__(cls, code: int, retriable: bool = FINAL, text: str = "") -> Error:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        member.text = text
        return member

    @classmethod
    def of(cls, code: int) -> Error:
        """The error of a code from the wire; one that we don't know (a newer peer's) is UNKNOWN_SERVER_ERROR."""
        member = cls._value2member_map_.get(code, cls.UNKNOWN_SERVER_ERROR)
        assert isinstance(member, Error)
        return member


TEXT_CHARACTERS_MAX: Final = 1000
"""A text that quotes what was asked for must not be longer than a string of the protocol: that has 32,767 bytes."""


class HeadraceError(Exception):
    """What went wrong, in one sentence for a person: what it is, where, and what to do next."""


class ProtocolError(HeadraceError):
    """Bytes that can't be read as what they should be. The connection that they came from is of no more use."""


class Refused(HeadraceError):
    """The world asked for something that is answered with an error code, and with this text where the API has room."""

    def __init__(self, error: Error, text: str | None = None) -> None:
        super().__init__(error, text)
        self.error = error
        self.text = error.text if text is None else text
        if len(self.text) > TEXT_CHARACTERS_MAX:
            self.text = f"{self.text[: TEXT_CHARACTERS_MAX // 2]} … {self.text[-TEXT_CHARACTERS_MAX // 2 :]}"

    def __str__(self) -> str:
        return self.text
