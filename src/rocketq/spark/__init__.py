"""Topics as DataFrames: a source and a sink for Spark, a reader of store files, ready-made pipelines."""
