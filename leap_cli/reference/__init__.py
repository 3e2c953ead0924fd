"""The command reference and the manual pages, made from the declarations of commands when they are asked for."""
