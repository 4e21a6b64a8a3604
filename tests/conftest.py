from collections import Counter


def pytest_terminal_summary(terminalreporter):
    """How many law cases were run, and with what verdict, so that a catalogue that shrinks is seen."""
    passed = terminalreporter.stats.get("passed", [])
    told = [dict(report.user_properties).get("verdict") for report in passed]
    verdicts = Counter(verdict for verdict in told if verdict)
    if verdicts:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
        terminalreporter.write_line(f"law cases, {verdicts.total()} in all: {counts}")
