def pytest_terminal_summary(terminalreporter):
    """How many law cases were run, so that a catalogue that shrinks is seen."""
    passed = terminalreporter.stats.get("passed", [])
    cases = [report for report in passed if "tests/laws/test_laws.py" in report.nodeid]
    terminalreporter.write_line(f"law cases passed: {len(cases)}")
