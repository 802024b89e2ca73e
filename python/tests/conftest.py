"""Small scenario for all tests: a busy volume on the slow tier, an idle one on the fast tier."""

import pytest

import terrace

TEXT = """
duration = "3m"
window = "10s"
copy_chunk = "1 MiB"

[[tiers]]
name = "fast"
preset = "pm953"
capacity = "4 GiB"

[[tiers]]
name = "slow"
preset = "pm863"
capacity = "12 GiB"

[[classes]]
name = "gold"
weight = 2.0
latency = "200us"

[policy]
monitor_epoch = "10s"
migration_epoch = "30s"
cooldown = "0s"

[[volumes]]
name = "busy"
class = "gold"
size = "2 GiB"
tier = "slow"

[[volumes]]
name = "idle"
size = "1 GiB"
tier = "fast"

[[clients]]
volume = "busy"
habits = { outstanding = 2, rate = "300 IOPS" }

[[clients]]
volume = "idle"
habits = { outstanding = 1, rate = "20 IOPS" }
"""

class Promote:
    """Moves the busiest volume to the first tier."""

    def decide(self, facts, state, seed):
        seen = (state or 0) + 1
        volumes = [v for v in facts.volumes.to_pylist() if v["iops"] is not None]
        busiest = max(volumes, key=lambda v: (v["iops"], v["name"]))
        fast = facts.tiers["name"][0]
        if busiest["tier"] == fast:
            return [], seen
        return [{"volume": busiest["name"], "tier": fast, "reason": f"{busiest['iops']:.0f} IOPS"}], seen


@pytest.fixture
def scenario():
    return terrace.Scenario(TEXT)


@pytest.fixture
def table():
    """Requests of a synthetic trace: 3 volumes, a hot page and a scan."""
    pa = pytest.importorskip("pyarrow")
    rows = range(4000)
    return pa.table(
        {
            "time_ns": [i * 1_000_000 for i in rows],
            "volume": [f"v{i % 3}" for i in rows],
            "op": ["read" if i % 4 else "write" for i in rows],
            "offset_bytes": [0 if i % 2 else (i * 4096) % (1 << 22) for i in rows],
            "length_bytes": [4096 for i in rows],
        }
    )
