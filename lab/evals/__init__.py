"""Evals: tasks of samples, graders that say why, results that can be read one by one, and how sure a score is."""

from lab.evals.graders import FAILURES, GRADERS, grader, normalise
from lab.evals.harness import evaluate
from lab.evals.stats import Comparison, Interval, compare, mcnemar, wilson
from lab.evals.task import Grade, Result, Sample, Step, Task, by_sample, read_results

__all__ = [
    "FAILURES",
    "GRADERS",
    "Comparison",
    "Grade",
    "Interval",
    "Result",
    "Sample",
    "Step",
    "Task",
    "by_sample",
    "compare",
    "evaluate",
    "grader",
    "mcnemar",
    "normalise",
    "read_results",
    "wilson",
]
