"""What a measurement says, and the table of all of them."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    name: str
    ratio: float
    target: str
    """such as "≤ 1.10" or "≥ 2.5"; empty where nothing was promised"""
    detail: str
    """the two sides of the ratio, in words and numbers"""
    facts: dict[str, object] = field(default_factory=dict)
    """what is worth keeping beside them"""

    @property
    def reached(self) -> bool | None:
        if not self.target:
            return None
        sign, limit = self.target.split()
        return self.ratio <= float(limit) if sign == "≤" else self.ratio >= float(limit)


def table(figures: list[Figure]) -> str:
    """Markdown."""
    lines = ["| figure | measured | target | | |", "|---|---|---|---|---|"]
    for figure in figures:
        mark = {True: "✓", False: "✗", None: ""}[figure.reached]
        lines.append(f"| {figure.name} | {figure.ratio:.3g}× | {figure.target} | {mark} | {figure.detail} |")
    return "\n".join(lines)
