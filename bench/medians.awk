# Prints a table as it comes and keeps its columns from the fourth on; median(I) is that of column I. For scripts that say what to do at its END.
{ print }
NR > 1 { n++; for (i = 4; i <= NF; i++) v[i, n] = $i }
function median(i,    a, j, k, t) {
    for (j = 1; j <= n; j++) a[j] = v[i, j]
    for (j = 1; j <= n; j++) for (k = j + 1; k <= n; k++) if (a[k] < a[j]) { t = a[j]; a[j] = a[k]; a[k] = t }
    return a[int((n + 1) / 2)]
}
END { if (n == 0) exit 1 }
