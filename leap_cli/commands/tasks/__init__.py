"""Commands of tasks with a result that can be checked, and of how good models are at them."""
