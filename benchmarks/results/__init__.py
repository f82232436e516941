"""The runs of a test, and the document of its results; comparisons of documents."""
