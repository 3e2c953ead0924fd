"""How any command works: environment, output, errors, interrupts, defaults of options. Knows no command."""
