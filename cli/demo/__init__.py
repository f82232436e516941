"""`blkreel demo`: a recorded application, replayed on scratch drives."""
