"""The pipeline on Apache Spark: the same events as one process, from many files at once.

The only package that imports pyspark, which comes with the extra `spark`.
"""
