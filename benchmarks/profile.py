"""Where does the processor time of a message go?"""


def main(a):
    return 0
