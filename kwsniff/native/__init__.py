"""One source, two executions: what functions over tables of integers need to run compiled or interpreted."""
