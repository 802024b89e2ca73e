# For scripts to read: skip WHAT … says what is missing and ends them; with an error where TERRACE_HAS has the word WHAT.
skip() {
  echo "skipped: needs $*"
  case " ${TERRACE_HAS:-} " in
    *" $1 "*) echo "TERRACE_HAS lists $1, which is not available" >&2; exit 1 ;;
  esac
  exit 0
}
