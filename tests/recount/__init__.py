"""Every number that outputs show, calculated again by DuckDB from the Parquet of `kwsniff decode`, by the
formulas of docs: nothing of kwsniff but its command line."""
