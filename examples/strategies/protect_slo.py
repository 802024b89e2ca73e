"""Example of a submission to the placement contest: volumes that violate their objective go to the next faster tier."""

PATIENCE = 2  # decisions in which the objective must be violated one after the other
MOVES_MAX = 2  # per decision


class ProtectSlo:
    """Moves the volumes with the largest weighted excess over their objective one tier up."""

    def decide(self, facts, state, seed):
        tiers = facts.tiers["name"]
        free = {t["name"]: 0.9 * t["capacity_bytes"] - t["used_bytes"] for t in facts.tiers.to_pylist()}
        classes = {c["name"]: c for c in facts.classes.to_pylist()}
        violated, candidates = {}, []
        for volume in facts.volumes.to_pylist():
            of_class = classes[volume["class"]]
            objective = of_class["objective_us"]
            latency = self.latency_us(volume, of_class["objective_statistic"])
            if objective is None or latency is None or latency <= objective or volume["moving"]:
                continue
            name = volume["name"]
            violated[name] = (state or {}).get(name, 0) + 1
            if violated[name] >= PATIENCE and volume["tier"] != tiers[0]:
                candidates.append((-of_class["weight"] * latency / objective, name, volume))
        moves = []
        for _, name, volume in sorted(candidates, key=lambda c: c[:2]):
            faster = tiers[tiers.index(volume["tier"]) - 1]
            if len(moves) < MOVES_MAX and volume["size_bytes"] <= free[faster]:
                free[faster] -= volume["size_bytes"]
                moves.append({"volume": name, "tier": faster, "reason": f"objective violated in {violated[name]} decisions"})
        return moves, violated

    @staticmethod
    def latency_us(volume, statistic):
        """Latency of the volume in the last epoch; for a percentile, that of the slower direction. None if unknown."""
        if statistic in (None, "mean"):
            return volume["latency_mean_us"]
        directions = [volume[f"{direction}_{statistic}_us"] for direction in ("read", "write")]
        return max((value for value in directions if value is not None), default=None)
