"""Says which stack it is going to have, then keeps it."""

import sys


def publish(frame):
    stack = []
    line = frame.f_lineno + 1  # where leaf() spins
    while frame is not None:
        code = frame.f_code
        stack.append(f"{code.co_qualname} ({code.co_filename}:{line})")
        frame = frame.f_back
        line = frame and frame.f_lineno
    with open("/expected.new", "w") as out:
        out.write(";".join(reversed(stack)) + "\n")


def leaf():
    publish(sys._getframe())
    while True: pass


def generator():
    yield leaf()


class Case:
    def method(self):
        for _ in generator():
            pass


def main():
    list(map(lambda _: Case().method(), [0]))


main()
