"""`headrace doctor`: is this machine, this node's folder, this cluster fit? What is not, and what to do about it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from headrace.cli import Misused
from headrace.cli.columns import Column
from headrace.cli.connection import DEFAULT_BOOTSTRAP, VARIABLE, Json, run
from headrace.cli.findings import Finding, Level, is_wrong, print_findings
from headrace.cli.output import BAD, GOOD, NAME, QUIET, WARN, print_json, print_table, say
from headrace.cli.quantities import plural, size_text
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.cli.doctor_bundle import Bundle
    from headrace.client import Client

DEFAULT_FOLDER = Path("headrace-data")

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command("doctor")
def doctor(
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", metavar="DIR", help="A folder of a node; by default ./headrace-data. May be repeated."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", envvar="HEADRACE_CONFIG", help="A node's settings: a TOML file."),
    ] = None,
    properties: Annotated[
        Path | None,
        typer.Option(
            "--properties",
            metavar="FILE",
            envvar="HEADRACE_PROPERTIES",
            help="A node's settings: a properties file of Kafka's.",
        ),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT",
            help=f"A cluster to look at; by default what {VARIABLE} says, or {DEFAULT_BOOTSTRAP} if one is there.",
        ),
    ] = None,
    no_cluster: Annotated[bool, typer.Option("--no-cluster", help="Look at no cluster.")] = False,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", metavar="FILE.tar.gz", help="Write a support bundle, and list what is in it."),
    ] = None,
    logs: Annotated[
        list[Path] | None, typer.Option("--log", metavar="FILE", help="A log for the bundle; may be repeated.")
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="HOST:PORT", help="Where /metrics is, if the cluster does not say."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the machine, a node's settings and folder, and a running cluster; say what to do about what is wrong.

    The exit code is 1 when there is a warning or a failure. A bundle has versions, findings, settings without secrets,
    the state of the cluster, and the logs and metrics that you name; it has no records of topics in it.

    Examples:

    - `headrace doctor`
    - `headrace doctor --data /var/lib/headrace --bootstrap 127.0.0.1:9092`
    - `headrace doctor --bundle support.tar.gz --log headrace.log`
    """
    if bundle is None and (logs or metrics):
        raise Misused("--log and --metrics are for a bundle; say --bundle FILE.tar.gz, too")
    if bundle is not None and not bundle.name.endswith((".tar.gz", ".tgz")):
        raise Misused(f"--bundle {bundle} writes an archive; name it {bundle}.tar.gz")
    if bundle is not None and bundle.exists():
        raise HeadraceError(f"{bundle} is there already; name another file for the bundle.")
    sections = _local_sections(data, properties, config)
    packed = _new_bundle() if bundle is not None else None
    found_at: list[str] = []
    if not no_cluster:
        sections["cluster"] = _cluster_findings(bootstrap, packed, found_at)
    everything = [finding for findings in sections.values() for finding in findings]
    if packed is not None and bundle is not None:
        _fill(packed, everything, properties, config, logs or (), found_at if metrics is None else [metrics])
        packed.write(bundle)
    if as_json:
        print_json(_as_json(sections, bundle, packed))
    else:
        _print(sections)
        if packed is not None and bundle is not None:
            _print_bundle(bundle, packed)
    if is_wrong(everything):
        raise typer.Exit(1)


def _local_sections(
    data: Sequence[Path] | None, properties: Path | None, toml: Path | None
) -> dict[str, list[Finding]]:
    from headrace.cli.doctor_folder import folder_findings
    from headrace.cli.doctor_machine import Machine, machine_findings
    from headrace.cli.doctor_settings import folders_of, settings_findings

    machine = Machine()
    sections = {"machine": list(machine_findings(machine))}
    folders = list(data or ())
    if properties is not None or toml is not None:
        config, sections["settings"] = settings_findings(properties, toml, os.environ)
        if not folders and config is not None:
            folders = folders_of(config)
    if not folders and DEFAULT_FOLDER.exists():
        folders = [DEFAULT_FOLDER]
    for folder in folders:
        sections[f"folder {folder}"] = list(folder_findings(folder, machine))
    return sections


# --- the cluster ------------------------------------------------------------------------------------------------------


def _cluster_findings(bootstrap: str | None, packed: Bundle | None, metrics: list[str]) -> list[Finding]:
    """A cluster that was named has to be there; where none was, there need be none.

    Where the brokers say that their metrics are is noted, for the bundle.
    """
    from headrace.cli.cluster import state_json
    from headrace.cli.doctor_cluster import examine
    from headrace.cli.quorum import quorum_json

    named = bootstrap or os.environ.get(VARIABLE)
    address = named or DEFAULT_BOOTSTRAP

    async def work(client: Client) -> list[Finding]:
        state, findings = await examine(client, address)
        if packed is not None:
            from headrace.cli.doctor_bundle import add_cluster

            quorum = None if state.quorum is None else quorum_json(state.quorum, state.info.cluster_id)
            metrics.extend(await add_cluster(packed, client, state_json(state), quorum))
        return findings

    try:
        return run(address, work, once=True)
    except Misused:
        raise
    except HeadraceError as error:
        if named is None:
            text = f"None is running at {address}; look at one with --bootstrap HOST:PORT."
            return [Finding(Level.NOTE, "reachable", text)]
        return [Finding(Level.PROBLEM, "reachable", str(error))]


# --- the bundle -------------------------------------------------------------------------------------------------------


def _new_bundle() -> Bundle:
    from headrace.cli.doctor_bundle import Bundle

    return Bundle()


def _fill(
    packed: Bundle,
    findings: Sequence[Finding],
    properties: Path | None,
    toml: Path | None,
    logs: Sequence[Path],
    metrics: Sequence[str],
) -> None:
    from headrace.cli.doctor_bundle import add_logs, add_machine, add_metrics, add_settings

    add_machine(packed, findings)
    add_settings(packed, properties, toml)
    add_logs(packed, logs)
    for number, address in enumerate(metrics):
        add_metrics(packed, address, f"metrics-{number}.txt" if number else "metrics.txt")


# --- what is shown ----------------------------------------------------------------------------------------------------


def _print(sections: dict[str, list[Finding]]) -> None:
    for title, findings in sections.items():
        say(title, "bold")
        print_findings(findings)
        say("")
    everything = [finding for findings in sections.values() for finding in findings]
    counts = {level: sum(finding.level is level for finding in everything) for level in Level}
    problems, warnings = counts[Level.PROBLEM], counts[Level.WARNING]
    if problems or warnings:
        told = [plural(problems, "problem")] * bool(problems) + [plural(warnings, "warning")] * bool(warnings)
        say(f"{' and '.join(told)} to look at.", BAD if problems else WARN)
    else:
        say("Nothing is wrong.", GOOD)


def _print_bundle(path: Path, packed: Bundle) -> None:
    say(Text.assemble("\nWrote ", (str(path), NAME), f" ({size_text(path.stat().st_size)}), with:"))
    rows = [(name, size_text(size), what) for name, size, what in packed.contents()]
    print_table([Column("", NAME), Column(">"), Column("", QUIET)], rows, indent="  ")
    for note in packed.notes:
        say(f"  {note}", WARN)


def _as_json(sections: dict[str, list[Finding]], bundle: Path | None, packed: Bundle | None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "ok": not any(is_wrong(findings) for findings in sections.values()),
        "sections": {title: [finding.as_json() for finding in findings] for title, findings in sections.items()},
    }
    if packed is not None:
        files = [{"name": name, "size_bytes": size, "what": what} for name, size, what in packed.contents()]
        told["bundle"] = {"path": str(bundle), "files": files, "notes": packed.notes}
    return told
