"""`wsopt trace`: a build's kernel with stamps inside, and its operations as predicted beside as measured."""
