"""Small things that every room uses; it imports none of them."""
