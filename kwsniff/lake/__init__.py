"""Where the pipeline's results lie: their tables, the files of these, and how a new version takes the place
of an earlier one, on any file system. Knows nothing of Spark."""
