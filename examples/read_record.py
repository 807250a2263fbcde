# A run record with pandas: python3 read_record.py DIRECTORY
import sys, numpy, pandas

record = sys.argv[1]
points = pandas.read_json(f"{record}/points.jsonl", lines=True)
rows = points[points.series.str.len() > 0].explode("series", ignore_index=True)
table = pandas.json_normalize(rows.parameters).join(pandas.json_normalize(rows.series))
samples = [numpy.load(f"{record}/{name}") for name in table.samples_file]
table["median_ns"] = [numpy.nanmedian(s[w:]) if n else numpy.nan  # lost messages are NaN
                      for s, w, n in zip(samples, table.warm_up_n, table.n)]
print(table[["size_bytes", "quantity", "label", "n", "min_ns", "median_ns", "max_ns"]].to_string())
