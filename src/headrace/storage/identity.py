"""Whose files these are: `meta.properties` of a log directory, `partition.metadata` of a partition's folder.

Ids are 16 bytes here and base64 for URLs, without padding, in files and for people: Kafka's way.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from typing import Final

from headrace.errors import HeadraceError
from headrace.plain import plain
from headrace.storage.disk import Disk, FileVanished

META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"

_META_VERSION: Final = 1
_PARTITION_VERSION: Final = 0


class WrongDirectory(HeadraceError):
    """The folder is another node's, another cluster's, or says nothing that can be understood."""


def id_text(id: bytes) -> str:
    return urlsafe_b64encode(id).rstrip(b"=").decode()


def parse_id(text: str) -> bytes:
    """Raises ValueError for what is no id."""
    try:
        id = urlsafe_b64decode(text + "==") if re.fullmatch(r"[\w-]{22}", text, re.ASCII) else b""
    except NotBase64:
        id = b""
    if len(id) != 16:
        raise ValueError(f"{text[:40]!r} is no id: it takes 22 letters, digits, '-' or '_'")
    return id


@plain
class MetaProperties:
    """Which node of which cluster a log directory belongs to (version 1), and the directory's own id (KIP-858)."""

    cluster_id: str
    node_id: int
    directory_id: bytes | None = None

    def encode(self) -> bytes:
        lines = [f"version={_META_VERSION}", f"cluster.id={self.cluster_id}", f"node.id={self.node_id}"]
        if self.directory_id is not None:
            lines.append(f"directory.id={id_text(self.directory_id)}")
        return "\n".join(["#", *lines, ""]).encode()

    @classmethod
    def read(cls, disk: Disk) -> MetaProperties | None:
        """None in a folder that nobody has formatted. One that can't be understood raises WrongDirectory."""
        path = disk.full_path(META_PROPERTIES)
        try:
            properties = _parse_properties(disk.read(META_PROPERTIES).decode())
        except FileVanished:
            return None
        except UnicodeDecodeError:
            raise WrongDirectory(f"{path} is damaged: it is not text; restore it, or choose another folder") from None
        if not properties:
            raise WrongDirectory(f"{path} is damaged: it has no line NAME=VALUE; restore it, or choose another folder")
        version = properties.get("version", "0")
        if version != str(_META_VERSION):
            raise WrongDirectory(
                f"{path} has version {version[:20]}, and only version {_META_VERSION} can be read; "
                + (
                    "a directory of a Kafka with ZooKeeper must be migrated by Kafka first"
                    if version == "0"
                    else "restore it, or choose another folder"
                )
            )
        try:
            directory_id = parse_id(properties["directory.id"]) if "directory.id" in properties else None
            cluster_id, node_id = properties["cluster.id"], properties["node.id"]
            if not re.fullmatch(r"\d{1,10}", node_id, re.ASCII):
                raise ValueError(f"{node_id[:20]!r} is no node.id: it takes a number")
            return cls(cluster_id, int(node_id), directory_id)
        except KeyError as error:
            raise WrongDirectory(f"{path} has no {error.args[0]}; restore it, or choose another folder") from None
        except ValueError as error:
            raise WrongDirectory(f"{path} is damaged: {error}; restore it, or choose another folder") from None

    def write(self, disk: Disk) -> None:
        """Blocks for two syncs."""
        disk.replace(META_PROPERTIES, self.encode())

    def check(self, disk: Disk, *, cluster_id: str, node_id: int) -> None:
        """Raises WrongDirectory when the directory belongs to another cluster or another node."""
        if self.cluster_id != cluster_id:
            raise WrongDirectory(
                f"{disk.root} belongs to cluster {self.cluster_id}, and this node to cluster {cluster_id}; "
                "choose another folder"
            )
        if self.node_id != node_id:
            raise WrongDirectory(
                f"{disk.root} belongs to node {self.node_id}, and this is node {node_id}; "
                f"choose another folder or set node.id={self.node_id}"
            )


def read_topic_id(disk: Disk, folder: str) -> bytes | None:
    """The topic's id from a partition's folder; None where there is none. A damaged one raises WrongDirectory."""
    path = f"{folder}/{PARTITION_METADATA}"
    try:
        content = disk.read(path)
    except FileVanished:
        return None
    found = re.fullmatch(rb"version:\s*(\d+)\s+topic_id:\s*([\w-]+)\s*", content)
    try:
        if found is None or int(found[1]) != _PARTITION_VERSION:
            raise ValueError("it does not say version 0 and a topic id")
        return parse_id(found[2].decode())
    except ValueError as error:
        raise WrongDirectory(
            f"{disk.full_path(path)} is damaged: {error}; restore it, or remove the folder to fetch the partition anew"
        ) from None


def is_topic_id_cut(disk: Disk, folder: str, topic_id: bytes) -> bool:
    """Whether the file holds less than all of this id, as after a loss of power before it was durable."""
    try:
        content = disk.read(f"{folder}/{PARTITION_METADATA}").rstrip(b"\0")
    except FileVanished:
        return False
    whole = encode_topic_id(topic_id)
    return len(content) < len(whole) and whole.startswith(content)


def encode_topic_id(topic_id: bytes) -> bytes:
    return f"version: {_PARTITION_VERSION}\ntopic_id: {id_text(topic_id)}".encode()


_PROPERTY: Final = re.compile(r"((?:\\.|[^\\=:\s])+)\s*[=:\s]\s*(.*)")


def _parse_properties(text: str) -> dict[str, str]:
    """Java's properties: comments, the three separators and escaped characters; no lines that go on."""
    properties = {}
    for line in text.splitlines():
        found = _PROPERTY.fullmatch(line.strip())
        if found and line.strip()[0] not in "#!":
            properties[_unescape(found[1])] = _unescape(found[2])
    return properties


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
