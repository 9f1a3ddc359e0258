"""Ready-made pipelines: plain functions from DataFrames to DataFrames, for notebooks, streams and spark-pipelines."""
