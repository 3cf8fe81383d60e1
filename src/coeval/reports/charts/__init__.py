"""What tables look like: specifications of pictures, and the one theme that they are drawn in."""
