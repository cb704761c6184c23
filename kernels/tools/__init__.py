"""Run a kernel's source without a GPU (interpreter) and compile it for a GPU that is not here.

Both happen in a child process: Triton's interpreter and its compiler cannot share one, and source that
somebody is editing must be able to hang or crash without taking the notebook along.
"""

from .compile import TARGETS, Compiled, compile_source
from .interpret import Check, interpret_source
from .process import KernelError

__all__ = ["TARGETS", "Check", "Compiled", "KernelError", "compile_source", "interpret_source"]
