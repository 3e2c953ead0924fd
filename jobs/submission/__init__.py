"""What a program asks for, as rows of the table of jobs."""
