"""One file a noun, in folders as ``leap --help`` groups them.

Each has an object ``command``, named in ``leap_cli.command_table`` and imported when used. A command checks its flags,
calls one function of the library and hands the result to ``framework.output``. It prints nothing itself and catches no
library error: ``framework.error_boundary`` turns those into a line and an exit code.
"""
