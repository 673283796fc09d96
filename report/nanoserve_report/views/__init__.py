"""Tables of the pages: sound things in, `Table` out; what is refused becomes a hole."""
