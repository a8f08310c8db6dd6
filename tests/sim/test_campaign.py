"""Campaigns: many seeds over several processes, failures told with the command that repeats them, and resuming."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.testing.sim import campaign
from headrace.testing.sim.campaign import Campaign, find_scenario

ROOT = Path(__file__).parents[2]
FAILING = "tests.sim.failing:failing"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace.testing.sim", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_failure_is_told_with_the_command_that_repeats_it(tmp_path: Path) -> None:
    done = run("--scenario", FAILING, "--seeds", "25", "--jobs", "2", "--state", str(tmp_path))
    assert done.returncode == 1
    assert "25 seeds, 3 failed" in done.stdout
    assert "seed 13 failed: seed 13 is unlucky" in done.stdout
    assert f"again: python -m headrace.testing.sim --scenario {FAILING} --seed 13" in done.stdout

    again = run("--scenario", FAILING, "--seed", "13")
    assert again.returncode == 1
    assert "something happens" in again.stdout
    assert "seed 13: seed 13 is unlucky" in again.stdout


def test_a_campaign_goes_on_where_it_was(tmp_path: Path) -> None:
    state = tmp_path / "state.jsonl"
    first = Campaign(FAILING, 0, 30, jobs=1, state=state).run()
    assert (len(first.seeds), len(first.failures)) == (30, 3)
    before = len(state.read_text().splitlines())
    state.write_text(state.read_text() + '{"seeds": [1, 2')  # it was killed
    second = Campaign(FAILING, 0, 50, jobs=1, state=state).run(resume=True)
    assert (sorted(second.seeds), len(second.failures)) == (list(range(50)), 5)
    assert len(state.read_text().splitlines()) - before <= 3, "20 seeds more, ten at a time"


def test_a_campaign_over_other_code_starts_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state.jsonl"
    Campaign(FAILING, 0, 10, jobs=1, state=state).run()
    monkeypatch.setattr(campaign, "fingerprint", lambda name: "other")
    unfinished = Campaign(FAILING, 0, 10, jobs=1, state=state)
    assert unfinished._done_before().seeds == []


def test_a_campaign_stops_after_so_many_failures() -> None:
    tally = Campaign(FAILING, 0, 1000, jobs=1, failures_max=2).run()
    assert len(tally.failures) == 2
    assert len(tally.seeds) < 1000


def test_a_scenario_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(HeadraceError, match="there is no scenario tests.sim.echo:nothing"):
        find_scenario("tests.sim.echo:nothing")
    done = run("--scenario", "nonsense", "--seeds", "1")
    assert done.returncode == 2
    assert done.stderr.startswith("sim: there is no scenario nonsense")


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_campaign_that_is_ended_takes_its_workers_along(tmp_path: Path, by: signal.Signals) -> None:
    command = [sys.executable, "-m", "headrace.testing.sim", "--scenario", "tests.sim.echo:echo", "--seeds", "1000000"]
    with subprocess.Popen(
        [*command, "--state", str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as campaign:
        written = tmp_path / "tests.sim.echo.echo.jsonl"
        while not (written.exists() and len(written.read_text().splitlines()) > 1):
            assert campaign.poll() is None
            time.sleep(0.02)
        campaign.send_signal(by)
        # To the end of what they print to: the workers have it, too.
        _, said = campaign.communicate(timeout=60)
    assert campaign.returncode == 130
    assert "go on with --resume" in said
