"""Functions for DataFrames of Spark, which `from spark import ...` offers (docs/spark.md)."""
