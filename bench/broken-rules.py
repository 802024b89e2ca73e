#!/usr/bin/env python3
"""Breaks one rule of the data path at a time, on purpose, and lets the crash suite look for it: that it can fail.

usage: bench/broken-rules.py [--seeds N] [--from SEED] [NAME ...]
       bench/broken-rules.py --check        only looks whether each rule's code is there

For each rule: a copy of the tree below target/broken-rules, the rule's code replaced there, and crash worlds until one of them
fails. Prints the rule, the seed that found it, and what was found; ends with an error if a rule is not found in N seeds (default 20000),
or if its code is not there any more. About a minute for each. The tree as it is goes first, through UNBROKEN seeds: if one of them
fails nothing is said about rules, since every one of them would count as found.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target" / "broken-rules"
ARRAY = "live/array/src/"
DATAPATH = "live/datapath/src/"
VOLUME = "core/volume/src/"

# name: what is broken; file; what stands there; what takes its place.
RULES = [
    # What a start believes.
    ("stale copy: a copy of the map is believed beside a device that knows better",
     ARRAY + "membership.rs",
     "found.supersedes(self.confirmed.stamp) && !self.has_proposed(found)",
     "{ let _ = found; false }"),
    ("generation alone: two memberships of one generation are taken for one",
     ARRAY + "membership.rs",
     "            || self.generation == other.generation && self.nonce != other.nonce",
     ""),
    ("no vouching: a copy is believed though the other may have gone on alone",
     ARRAY + "membership.rs",
     "        if there < needed {",
     "        if there < needed && needed == usize::MAX {"),
    ("left behind: a copy is believed that was dropped",
     ARRAY + "membership.rs",
     "(!state.may_be_members().contains(copy))\n        .then_some(MapChoiceError::NoMember { copy, generation })",
     "{ let _ = copy; None }"),
    ("first come: the first copy is the map, whatever the other one has",
     ARRAY + "membership.rs",
     "(c.state.confirmed.stamp.generation, c.state.commits, first)",
     "first"),
    ("taken for current: a second copy that is behind is not made anew",
     ARRAY + "membership.rs",
     "o.state == best.state && best.state.confirmed.members.contains(o.copy)",
     "best.state.confirmed.members.contains(o.copy)"),
    ("old device: a device joins whatever its generation",
     ARRAY + "membership.rs",
     "    if !known {",
     "    if !known && state.commits == u64::MAX {"),
    ("unflushed device: a device that was away joins though its writes may be lost",
     ARRAY + "membership.rs",
     "    Err(JoinError::Unflushed)",
     "    Ok(())"),
    ("same boot: a device is taken for flushed because of a start that never was",
     ARRAY + "membership.rs",
     "found.flushed || found.boot != boot",
     "found.flushed || found.boot == boot"),
    # How copies are kept.
    ("one is enough: a commit that failed in one copy leaves that copy a member",
     ARRAY + "copies.rs",
     """            for (copy, why, _) in failed {
                self.drop_copy(copy, why);
            }
            self.took(changes);""",
     """            drop(failed);
            self.took(changes);"""),
    ("told early: a commit is acknowledged before the others know that a copy was dropped",
     DATAPATH + "keeper/commits.rs",
     "            Ok(()) if self.map.confirmed() => Ok(()),",
     "            Ok(()) => Ok(()),"),
    ("doubt forgotten: a commit that may be durable is taken for one that is not",
     ARRAY + "copies.rs",
     "let durable = most > self.state.commits;",
     "let durable = most > self.state.commits + 1;"),
    ("gaps: a copy that is made anew lacks the commits of meanwhile",
     ARRAY + "copies/rebuild.rs",
     """            self.fresh.array.commit(changes)?;
            self.commits = number;""",
     """            let _ = changes;
            self.commits = number;"""),
    ("not asked: a copy takes its place without being like the map",
     ARRAY + "copies/rebuild.rs",
     [("            self.fresh.array.commit(changes)?;\n", "            let _ = changes;\n"),
      ("if array.state()? != *expected {", "if array.state()?.commits > expected.commits {")],
     None),
    # Memberships.
    ("nobody told: devices do not get the new stamp",
     DATAPATH + "keeper/members.rs",
     "            let written = self.put_superblocks_or_lose(self.stamped(stamp));",
     "            let written: Vec<DeviceId> = self.superblocks.keys().copied().collect(); let _ = |k: &mut Self| k.put_superblocks_or_lose(k.stamped(stamp));"),
    ("alone with too few: a copy goes on alone though too few devices can be told",
     DATAPATH + "keeper/members.rs",
     "        match stamped >= needed {",
     "        match stamped >= needed || needed > 0 {"),
    ("spoiled stamp: a membership is confirmed under a stamp that a lost device carries",
     DATAPATH + "keeper/members.rs",
     "        self.spoiled |= stamp.is_some() && stamp == proposed || self.writing.is_some();",
     "        let _ = (stamp, proposed);"),
    ("not proposed: devices are stamped before the map knows of it",
     DATAPATH + "keeper/members.rs",
     "            self.propose(stamp, members)?;\n            if self.map.members() != members {",
     "            let _ = self.put_superblocks_or_lose(self.stamped(stamp)); self.propose(stamp, members)?;\n            if self.map.members() != members {"),
    ("uncertain stamp: a stamp whose writing failed is forgotten",
     DATAPATH + "keeper/refresh.rs",
     "                    self.uncertain.entry(id).or_default().insert(stamp);",
     "                    let _ = id;"),
    ("confirmed early: a generation is confirmed before every device carries it",
     DATAPATH + "keeper/refresh.rs",
     "        if !everywhere || !proposed || !settled {",
     "        let _ = everywhere; if !proposed || !settled {"),
    ("unsettled: a superblock that was only in a cache is taken as it is",
     DATAPATH + "keeper/members.rs",
     "    stamp.is_some_and(|s| !s.was.is_empty())",
     "    stamp.is_some_and(|s| !s.was.is_empty() && s.now == Stamp::NONE)"),
    ("always flushed: devices say that they are flushed while guests write",
     DATAPATH + "keeper/members.rs",
     "                flushed: false,\n                boot: self.host.boot,",
     "                flushed: true,\n                boot: self.host.boot,"),
    ("closed unflushed: a device is closed though it could not be flushed",
     DATAPATH + "keeper/members.rs",
     "            if let Err(error) = result {\n                self.lose(id, format!(\"it cannot be flushed: {error}\"));",
     "            if let Err(error) = result.or(Ok::<(), std::io::Error>(())) {\n                self.lose(id, format!(\"it cannot be flushed: {error}\"));"),
    ("back at once: a device that was lost in use is taken back by itself",
     DATAPATH + "keeper/members.rs",
     "            in_use: self.guests,",
     "            in_use: false,"),
    ("losses untold: guests of a lost device are not told that writes may be lost",
     DATAPATH + "engine/flush.rs",
     "        if unflushed {\n            self.flush_failed_elsewhere(Failure::new(device, IoKind::Flush, Errno::NODEV));\n        }",
     "        let _ = unflushed;"),
    ("back and clean: what is written to a device that is back is not flushed",
     DATAPATH + "engine/flush.rs",
     "        state.absent = false;\n        state.dirty |= holds;",
     "        let _ = holds;"),
    # What held before there were copies.
    ("no marks: slots are written before their mark is durable",
     DATAPATH + "keeper/places.rs",
     "        (at.slot >= self.records[&at.device].high_water).then_some(Change::HighWater {",
     "        (at.slot >= self.records[&at.device].high_water && at.slot == u32::MAX).then_some(Change::HighWater {"),
    ("dirty slots: slots that were given up are not zeroed",
     DATAPATH + "keeper/places.rs",
     "            let result = self.devices[&device].zero(&dirty, extent);",
     "            let result = Ok(());"),
    ("late zeroes: slots that may be zeroed yet are handed out",
     DATAPATH + "keeper/places.rs",
     [("        if !error.late {\n            self.slots.not_cleaned(device, slots);",
       "        if error.late {\n            self.slots.cleaned(device, slots);\n        } else {\n            self.slots.not_cleaned(device, slots);"),
      ("            self.zeroed(device, &slots, result);", "            let _ = (slots, result);")],
     None),
    ("switch unflushed: a move switches before its target is flushed",
     DATAPATH + "engine/mover.rs",
     "                    self.start_flush(Owner::MoveFlush { batch }, device);",
     "                    let _ = (device, |e: &mut Self, d| e.start_flush(Owner::MoveFlush { batch }, d));\n                    self.move_flush_done(batch);"),
    ("switch after a loss: a failed flush of the target does not end the move",
     VOLUME + "mover.rs",
     "        if losses > self.losses {",
     "        if losses > self.losses + 1_000_000 {"),
    ("others' losses: a flush that failed for the keeper is not told to volumes",
     DATAPATH + "engine/flush.rs",
     "        if state.dirty || !state.running.is_empty() || state.writing > 0 {",
     "        if state.dirty && state.writing > 1_000_000 {"),
    # The cache in memory.
    ("beside a change: a read is answered from memory while a change of its pages is under way",
     DATAPATH + "cached.rs",
     "        if self.kept_out || !self.contains(request) {\n            return false;\n        }\n        let pages = self.pages_of(memory, request);\n        if self.flight.changes(&pages) {",
     "        if self.kept_out || !self.contains(request) {\n            return false;\n        }\n        let pages = self.pages_of(memory, request);\n        if self.flight.changes(&pages) && pages.start == u64::MAX {"),
    ("overtaken read: what a read found is kept though a change came meanwhile",
     DATAPATH + "cached/flight.rs",
     "            read.alone &= !overlap(&read.pages, &pages);",
     "            let _ = &read;"),
    ("late read: what a read found is kept though a change was under way when it came",
     DATAPATH + "cached/flight.rs",
     "        let alone = !self.changes(&pages) && self.before == 0;",
     "        let alone = self.before == 0;"),
    ("two writes: of two writes at once one is kept",
     DATAPATH + "cached/flight.rs",
     "                (other.alone, alone) = (false, false);",
     "                alone = other.alone;"),
    ("failed change: pages stay that a change has failed at",
     DATAPATH + "cached.rs",
     "                    let was = memory.pages.remove(self.volume, page);",
     "                    let was = memory.pages.find(self.volume, page).is_some();"),
    ("failed flush: pages stay after a flush that failed",
     DATAPATH + "cached.rs",
     "        if request.op == GuestOp::Flush && data.is_none() {",
     "        if request.op == GuestOp::Flush && data.is_none() && request.length == u64::MAX {"),
    ("lost and kept: pages stay when a device is lost",
     DATAPATH + "cached.rs",
     "        self.flight.keep_nothing();\n        memory.pages.clear(self.volume);",
     "        self.flight.keep_nothing();"),
    ("kept out and in: what is under way is kept of a volume of which nothing is to be",
     DATAPATH + "cached.rs",
     "        let data = data.filter(|_| !self.kept_out);",
     ""),
    # Its second level, which no crash world has: tests of the rules in pieces find these.
    ("no sum: what the second level reads is believed",
     DATAPATH + "cached/second.rs",
     "        match of.sum == self.sum(of.version, data) {",
     "        match of.sum == self.sum(of.version, data) || of.writing == of.ready || of.ready {"),
    ("two pages: a place of the second level is given away while it is written to",
     DATAPATH + "cached/second.rs",
     "        if writing {",
     "        if writing && version == u32::MAX {"),
    ("another's page: a place of the second level is read for a page that it had before",
     DATAPATH + "cached/second.rs",
     "        if of.version != stored.version {\n            return L2ReadResult::Overtaken;\n        }\n        match of.sum == self.sum(of.version, data) {",
     "        match of.sum == self.sum(of.version, data) {"),
    ("stale below: a change leaves its pages in the second level",
     DATAPATH + "cached.rs",
     "            second.pages_mut().remove_range(volume, pages.clone());",
     "            let _ = (&second, volume, &pages);"),
    ("read in advance: what is read for the second level alone is kept though a change came meanwhile",
     DATAPATH + "cached.rs",
     "        self.flight.over(pass) == Some(true) && !self.kept_out",
     "        self.flight.over(pass).is_some() && !self.kept_out"),
    # Second copies.
    ("read too early: reads go to a second copy that is not flushed",
     DATAPATH + "engine/mirror.rs",
     "            self.start_flush(Owner::MirrorFlush { batch }, to);",
     "            let _ = |e: &mut Self| e.start_flush(Owner::MirrorFlush { batch }, to);\n            self.mirror_flushed(batch, Ok(()));\n            return;"),
    ("one copy is right: a second copy stays when the first one has lost something",
     DATAPATH + "engine/mirror.rs",
     "            self.give_up(StopReason::FirstCopy(failure));",
     "            let _ = failure;"),
    ("lossy copy: a second copy stays when its device has lost something",
     DATAPATH + "engine/mirror.rs",
     "        if device == to {\n            self.give_up(StopReason::TargetFlush(failure));\n        } else if",
     "        if device == to {\n            let _ = failure;\n        } else if"),
    ("trimmed apart: a trim of a part goes to both copies",
     DATAPATH + "engine/mirror.rs",
     "            return false;\n        }\n        any\n",
     "            return false;\n        }\n        any && self.limits.mirror.look_ns == u64::MAX\n"),
    ("free too early: slots of a second copy are free while a late write may land",
     DATAPATH + "engine/mirror.rs",
     "        let ticket = state.ticket.take();\n        state.left -= left;",
     "        let early = state.ticket.take();\n        if let Some(ticket) = early { self.ticket_done(ticket); }\n        let state = &mut self.requests[id as usize];\n        let ticket = None;\n        state.left -= left;"),
    ("waits for ever: a change waits for a second copy that was given up",
     DATAPATH + "engine/mirror.rs",
     "            } else if state.left == state.mirrors {\n                self.straggle(id);",
     "            } else if state.left == state.mirrors && state.left == u32::MAX {\n                self.straggle(id);"),
]


def prepare():
    """A copy of the tree as it is, without what is built. Its files are new: what an earlier run has built of broken ones is not taken for it."""
    WORK.mkdir(parents=True, exist_ok=True)
    source = WORK / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns("target", ".git"), copy_function=shutil.copy)
    return source


def environment():
    return {**os.environ, "CARGO_TARGET_DIR": str(WORK / "target")}


def build(source):
    command = ["cargo", "test", "--quiet", "--release", "--locked", "-p", "datapath", "--test", "suite", "--no-run", "--message-format", "json"]
    done = subprocess.run(command, cwd=source, env=environment(), text=True, capture_output=True)
    if done.returncode:
        sys.exit("the modified source does not build:\n" + done.stderr[-3000:])
    messages = map(json.loads, filter(lambda line: line.startswith("{"), done.stdout.splitlines()))
    return [m["executable"] for m in messages if m.get("executable")][-1]


# Seeds of the unbroken tree.
UNBROKEN = 500


def run(program, first, seeds):
    """Crash worlds: the seed that fails and how, or None if none does."""
    worlds = {**os.environ, "TERRACE_SEEDS": f"{first}..{first + seeds}"}
    done = subprocess.run([program, "crash::no_crash", "--nocapture"], env=worlds, text=True, capture_output=True)
    if done.returncode == 0:
        return None
    # One that panics says so too: "seed N: panicked", below what the panic itself has said.
    found = re.search(r"^seed (\d+): (.*)", done.stderr, re.MULTILINE)
    said = re.search(r"panicked at .*:\n(.*)", done.stderr)
    if not found:
        # None fails, and too little happened in all of them together.
        return ("none", said[1]) if said else sys.exit(f"the crash suite ended with status {done.returncode}:\n{done.stderr[-3000:]}")
    seed, how = found.groups()
    if how == "panicked":
        how = f"panicked: {said[1]}" if said else how
    return seed, how


def failing_test(source):
    """The first other test of the two crates that fails: where no world finds a rule, because another one covers it."""
    for suite in (["-p", "array"], ["-p", "datapath", "--lib"], ["-p", "datapath", "--test", "suite", "--", "mirrors::", "second::"]):
        command = ["cargo", "test", "--quiet", "--release", "--locked", "--no-fail-fast", *suite]
        done = subprocess.run(command, cwd=source, env=environment(), text=True, capture_output=True)
        failed = re.search(r"^---- (\S+) stdout", done.stdout, re.M)
        if failed:
            return failed[1]
    return None


def broken(name, right, old, new, path):
    """A file's text with a rule broken."""
    for before, after in old if isinstance(old, list) else [(old, new)]:
        if right.count(before) != 1:
            sys.exit(f"{name}: its code occurs {right.count(before)} times in {path}, expected once: {before!r}")
        right = right.replace(before, after)
    return right


def check():
    for name, path, old, new in RULES:
        broken(name, (ROOT / path).read_text(), old, new, path)
    print(f"{len(RULES)} rules: the source code to break was found")


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--seeds", type=int, default=20000)
    args.add_argument("--from", dest="first", type=int, default=0)
    args.add_argument("--check", action="store_true", help="only check that the code of each rule exists")
    args.add_argument("names", nargs="*", help="only rules with these name prefixes")
    args = args.parse_args()
    if args.check:
        return check()
    source = prepare()
    missed = []
    failed = run(build(source), args.first, UNBROKEN)
    if failed:
        sys.exit(f"the unmodified source fails with seed {failed[0]}: {failed[1]}")
    print(f"unbroken     {UNBROKEN} seeds, 0 failed", flush=True)
    rules = [r for r in RULES if not args.names or any(r[0].startswith(n) for n in args.names)]
    for name, path, old, new in rules:
        file = source / path
        right = file.read_text()
        file.write_text(broken(name, right, old, new, path))
        try:
            program = build(source)
            began = time.monotonic()
            found = run(program, args.first, args.seeds)
            seconds = time.monotonic() - began
            test = None if found else failing_test(source)
        finally:
            file.write_text(right)
        if found:
            print(f"seed {found[0]:>6}  {name}\n             {found[1][:150]}", flush=True)
        elif test:
            print(f"test         {name}\n             {test} (no crash world of {args.seeds} seeds)", flush=True)
        else:
            missed.append(name)
            print(f"NOT FOUND  {name}: {args.seeds} seeds, {seconds:.0f} s, and no test", flush=True)
    print(f"\n{len(rules) - len(missed)} of {len(rules)} broken rules were found")
    sys.exit(1 if missed else 0)


main()
