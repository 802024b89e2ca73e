"""Random requests against the table of endpoints: the cluster answers each by its schema, and refuses wrong ones as such.

A request whose parameters follow the schema gets an answer that follows it, or a refusal in words of the source. One
parameter that breaks the schema gets status 400 and an error that names it. Neither may be a fault of the program.
"""

import random

from endpoints import ENDPOINTS, Endpoint
from schema import Prop
from testing import Failed, Running

# Requests that would end machines of other checks or change privileges are left out by their handlers.
LEFT_OUT = ("start", "stop")
TEXTS = (
    "",
    "x",
    "local",
    "tank",
    "scsi0",
    "scsi0,unused0",
    "100",
    "-1",
    "0",
    "1",
    "none",
    "local:100/vm-100-disk-0.qcow2",
    "ä",
    "a,b=c,,d",
    "x" * 50,
)
PLACES = {
    "node": ("pve1", "pve2", "pve3"),
    "vmid": ("100", "101", "102", "103", "104", "999"),
    "storage": ("local", "local-lvm", "tank", "shared", "vault", "none-such"),
    "sid": ("vm:101", "101", "vm:999"),
    "volume": ("vm-100-disk-9", "100/vm-100-disk-9.qcow2", "local:iso/none.iso", "nonsense"),
    "upid": ("UPID:pve1:00000001:00000001:00000001:qmmove:100:root@pam:", "x"),
}


def value(prop: Prop, key: str, rng: random.Random) -> str:
    """A value that follows the schema as far as its type goes."""
    if key in PLACES:
        return rng.choice(PLACES[key])
    if prop.enum:
        return rng.choice(prop.enum)
    if prop.type == "boolean":
        return rng.choice("01")
    if prop.type in ("integer", "number"):
        low, high = int(prop.minimum or 0), int(prop.maximum or 1000)
        return str(rng.randint(low, min(high, low + 1000)))
    return rng.choice(TEXTS)


def wrong(prop: Prop) -> str | None:
    """A value that breaks the schema, if the property has a rule that text can break."""
    if prop.type in ("boolean", "integer", "number"):
        return "wrong"
    if prop.enum:
        return "no-such-value"
    return "x" * (prop.max_length + 1) if prop.max_length and not prop.format and not prop.pattern else None


def one(t: Running, endpoint: Endpoint, rng: random.Random) -> None:
    named = [key for key in endpoint.parameters if "{" + key + "}" in endpoint.path]
    path = endpoint.path
    for key in named:
        path = path.replace("{" + key + "}", rng.choice(PLACES[key]))
    others = [key for key in endpoint.parameters if key not in named]
    chosen = [key for key in others if not endpoint.parameters[key].optional or rng.random() < 3 / len(others)]
    parameters = {key: value(endpoint.parameters[key], key, rng) for key in chosen}
    broken = ""
    if others and rng.random() < 0.5:
        broken = rng.choice([*others, "no-such-parameter"])
        text = wrong(endpoint.parameters[broken]) if broken in endpoint.parameters else "1"
        broken = broken if text is not None else ""
        if text is not None:
            parameters[broken] = text
    answer = t.raw(endpoint.method, path, parameters)
    where = f"{endpoint.method} {path} {parameters}: {answer.status} {answer.reason} {answer.body}"
    if answer.reason.startswith(("fake cluster: ", "Result verification")) and answer.status != 501:
        raise Failed(where)
    if broken and answer.status not in (400, 403):
        raise Failed(f"a wrong {broken} was not refused: {where}")
    if broken and answer.status == 400 and broken not in answer.body.get("errors", {}):
        raise Failed(f"the errors do not name {broken}: {where}")
    if answer.status == 200 and "data" not in answer.body:
        raise Failed(f"no data: {where}")


def run(t: Running, seed: int, count: int) -> None:
    rng = random.Random(seed)
    endpoints = [endpoint for endpoint in ENDPOINTS if endpoint.handler not in LEFT_OUT]
    try:
        for _ in range(count):
            one(t, rng.choice(endpoints), rng)
    except Failed as error:
        raise Failed(f"seed {seed}: {error}") from error
    print(f"     {count} random requests with seed {seed}")
