"""Groups of both protocols, with members and without."""

from __future__ import annotations

import re

from tests.compat.tools.run import Run

PROTOCOLS = {"classic": "Classic", "consumer": "Consumer"}


def run(run: Run) -> None:
    run.begin("Groups")
    run.tool("kafka-topics --create --topic work --partitions 2", "Created topic work.")
    run.tool("kafka-verifiable-producer --topic work --max-messages 100 --repeating-keys 10", '"acked":100')
    for protocol, type_name in PROTOCOLS.items():
        of_protocol(run, protocol, type_name)
    run.tool("kafka-consumer-groups --delete --group gone", "GroupIdNotFoundException")
    run.tool("kafka-consumer-groups --describe --group gone", "GroupIdNotFoundException: Group gone not found.")


def of_protocol(run: Run, protocol: str, type_name: str) -> None:
    group = f"{protocol}-workers"
    command = f"--command-property group.protocol={protocol}"
    run.tool(
        f"kafka-console-consumer --topic work --group {group} --from-beginning --max-messages 100 --timeout-ms 60000 "
        f"{command}",
        "Processed a total of 100 messages",
    )
    run.tool("kafka-groups --list", re.compile(rf"^{group} {type_name} consumer", re.MULTILINE))
    run.tool("kafka-consumer-groups --list --state", f"{group} Empty")
    run.tool(f"kafka-consumer-groups --list --type {protocol}", group)
    described = f"kafka-consumer-groups --describe --group {group}"
    run.tool(
        described,
        f"Consumer group '{group}' has no active members.",
        re.compile(rf"^{group} work 0 (\d+) \1 0 - - -", re.MULTILINE),
    )
    reset = f"kafka-consumer-groups --reset-offsets --group {group}"
    run.tool(f"{reset} --topic work --to-earliest --dry-run", f"{group} work 1 0")
    run.tool(described, re.compile(rf"^{group} work 0 (\d+) \1 0 - - -", re.MULTILINE))
    run.tool(f"{reset} --topic work --to-earliest --execute", f"{group} work 0 0", f"{group} work 1 0")
    run.tool(f"{reset} --topic work:0 --shift-by 7 --execute", f"{group} work 0 7")
    run.tool(f"{reset} --all-topics --to-datetime 2020-01-01T00:00:00.000 --execute", f"{group} work 1 0")

    member = (
        f"kafka-verifiable-consumer --topic work --group-id {group} --group-protocol {protocol} --max-messages 1000"
    )
    with run.staying(member, until='"name":"offsets_committed"'):
        run.tool(described, re.compile(rf"^{group} work 1 (\d+) \1 0 \S+ /127\.0\.0\.1 \S+", re.MULTILINE))
        run.tool(f"{described} --state", re.compile(rf"^{group} .* (range|uniform) Stable 1", re.MULTILINE))
        run.tool(f"{described} --members --verbose", re.compile(r"/127\.0\.0\.1 .*work:0,1|work\(0,1\)"))
        run.tool(f"{reset} --topic work --to-earliest --execute", "current state is Stable")
        run.tool(f"kafka-consumer-groups --delete --group {group}", "GroupNotEmptyException")
        run.tool("kafka-consumer-groups --list --state stable", f"{group} Stable")
    run.tool(f"kafka-consumer-groups --delete-offsets --group {group} --topic work:1", "work 1 Successful")
    run.tool(f"kafka-consumer-groups --delete --group {group}", f"('{group}') was successful")
    run.tool("kafka-consumer-groups --list", hides=group)
