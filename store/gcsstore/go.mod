module github.com/tenure-project/tenure/store/gcsstore

go 1.26.0

require github.com/tenure-project/tenure v0.0.0

replace github.com/tenure-project/tenure => ../..
