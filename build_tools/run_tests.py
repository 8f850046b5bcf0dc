"""Runs test suites one after the other and sums what they counted.

Each suite's runner prints as it goes and leaves a JUnit file, from which the counts come. A runner that breaks, or
that ran nothing, counts as one failure. The last line is `N passed, N failed, N skipped`; the exit status is 1 if
anything failed or nothing passed.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time
from dataclasses import dataclass, field
from xml.etree import ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON = sys.executable
SUITE_SECONDS = 30 * 60


@dataclass
class Result:
    name: str
    passed: int = 0
    skipped: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0

    def read(self, report: pathlib.Path) -> None:
        """Counts the test cases of a JUnit file, whoever wrote it."""
        for case in ElementTree.parse(report).iter("testcase"):
            outcomes = {child.tag for child in case}
            if outcomes & {"failure", "error"}:
                self.failures.append(f"{case.get('classname', '')} {case.get('name', '')}".strip())
            elif "skipped" in outcomes:
                self.skipped += 1
            else:
                self.passed += 1


def lit_command(build: pathlib.Path, report: pathlib.Path) -> list:
    lit = [PYTHON, "-c", "from lit.main import main; main()"]
    return [*lit, "-v", f"-Dbuild={build}", f"--xunit-xml-output={report}", ROOT / "test"]


def unit_command(build: pathlib.Path, report: pathlib.Path) -> list:
    options = ["--output-on-failure", "--no-tests=error", "--timeout", "300", "--output-junit", report]
    return ["ctest", "--test-dir", build, "--parallel", str(os.cpu_count()), *options]


def pytest_command(folder: str, report: pathlib.Path) -> list:
    workers = ["-n", str(os.cpu_count()), "--dist", "worksteal"]
    return [PYTHON, "-m", "pytest", *workers, ROOT / "test" / folder, f"--junit-xml={report}"]


SUITES = {
    "lint": lambda build, report: [PYTHON, ROOT / "build_tools/lint.py", "--build", build, "--junit", report],
    "docs": lambda build, report: [PYTHON, ROOT / "build_tools/docs.py", "--build", build, "--check"],
    "lit": lit_command,
    "unit": unit_command,
    "python": lambda build, report: pytest_command("python", report),
    "gpu": lambda build, report: pytest_command("gpu", report),
}
# Each of the processes that share the cores runs kernels on two threads, which leave a core when they wait.
ENVIRONMENT = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}
SINGLE_CHECKS = {"docs"}  # pass or fail by exit status, without a report


def run(name: str, build: pathlib.Path) -> Result:
    print(f"\n=== {name} ===", flush=True)
    result = Result(name)
    if name == "docs" and not (ROOT / "docs/reference").exists():
        print("SKIPPED: there is no docs/reference yet; `make docs` writes it", flush=True)
        result.skipped = 1
        return result
    report = build / "reports" / f"{name}.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    start = time.monotonic()
    try:
        status = subprocess.run(
            SUITES[name](build, report), cwd=ROOT, timeout=SUITE_SECONDS, env=os.environ | ENVIRONMENT
        ).returncode
        problem = f"the runner exited with status {status}" if status else None
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = f"the runner broke: {error}"
    result.seconds = time.monotonic() - start
    if name in SINGLE_CHECKS:
        result.passed = int(problem is None)
    elif report.exists():
        try:
            result.read(report)
        except ElementTree.ParseError as error:
            problem = f"the runner left a broken report: {error}"
    # A runner that ended badly without blaming a test, or that ran none, is itself the failure.
    if problem and not result.failures:
        result.failures.append(problem)
    elif not (result.passed or result.skipped or result.failures):
        result.failures.append("the runner ran no test")
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/dev", help="the CMake build folder")
    parser.add_argument("suites", nargs="+", choices=SUITES, metavar="SUITE", help=", ".join(SUITES))
    options = parser.parse_args()
    results = [run(name, options.build.resolve()) for name in options.suites]

    print(f"\n{'suite':8} {'passed':>8} {'failed':>8} {'skipped':>8} {'seconds':>8}")
    for result in results:
        counts = (result.passed, len(result.failures), result.skipped, round(result.seconds))
        print(f"{result.name:8}" + "".join(f" {count:8}" for count in counts))
    for result in results:
        for failure in result.failures:
            print(f"FAILED {result.name}: {failure}")
    passed = sum(result.passed for result in results)
    failed = sum(len(result.failures) for result in results)
    skipped = sum(result.skipped for result in results)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return int(failed > 0 or passed == 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
